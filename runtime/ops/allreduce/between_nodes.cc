#include "ops/allreduce/between_nodes.h"

#include <algorithm>
#include <cstring>

namespace hvd::ops {
namespace {

constexpr std::size_t two_rounds_from = 32 << 10;
constexpr std::size_t most_kept_bytes = 4 << 20;  ///< of a slice that is over

}  // namespace

unsigned char* BetweenNodes::wide(std::size_t begin, std::size_t end) {
  bool any = false;
  stream_->pieces(begin, end,
                  [&](const Item& item, std::size_t, std::size_t, std::size_t) { any |= item.wide.element_bytes > 0; });
  wide_.clear();
  if (!any) return nullptr;
  wide_.resize(wire_bytes(begin, end));
  return wide_.data();
}

/// Of a range that is wide somewhere.
std::size_t BetweenNodes::wire_bytes(std::size_t begin, std::size_t end) const {
  std::size_t total = 0;
  stream_->pieces(begin, end, [&](const Item& item, std::size_t, std::size_t, std::size_t bytes) {
    total += item.wire_bytes(bytes);
  });
  return total;
}

std::size_t BetweenNodes::part(const Slice& s, int n) const {
  if (s.whole) return 0;
  const std::size_t length = s.end - s.begin;
  const auto count = static_cast<std::size_t>(nodes_.count());
  const std::size_t each = ((length + count - 1) / count + 63) / 64 * 64;
  return std::min(length, each * static_cast<std::size_t>(n));
}

/// Where the parts lie as they travel: all ranks find the same, since all have the same stream.
void BetweenNodes::lay_out(Slice& s) const {
  if (s.whole) {
    s.part_bytes = s.wide.empty() ? s.end - s.begin : s.wide.size();
    return;
  }
  s.wire.push_back(0);
  for (int n = 0; n < nodes_.count(); ++n) {
    const std::size_t begin = part(s, n), end = part_end(s, n);
    s.wire.push_back(s.wire.back() + (s.wide.empty() ? end - begin : wire_bytes(s.begin + begin, s.begin + end)));
  }
  s.part_bytes = s.wire[static_cast<std::size_t>(nodes_.node) + 1] - s.wire[static_cast<std::size_t>(nodes_.node)];
}

/// New memory costs a page fault for each 4 KiB: slices are used again.
std::unique_ptr<BetweenNodes::Slice> BetweenNodes::fresh() {
  if (spare_.empty()) return std::make_unique<Slice>(transport_);
  auto s = std::move(spare_.back());
  spare_.pop_back();
  s->reduced = false;
  s->wire.clear();
  return s;
}

void BetweenNodes::start(std::uint64_t, unsigned char* data, std::size_t begin, std::size_t end) {
  auto s = fresh();
  s->data = data;
  s->begin = begin;
  s->end = end;
  s->wide = std::move(wide_);
  // Two nodes: one round carries no more than two, unless it carries it wide.
  s->whole = (nodes_.count() == 2 && s->wide.empty()) || end - begin < two_rounds_from;
  lay_out(*s);
  const std::size_t room = s->part_bytes * static_cast<std::size_t>(nodes_.count());
  if (s->from.size() < room) s->from.resize(room);
  const unsigned char* mine = s->wide.empty() ? data : s->wide.data();
  for (int n = 0; n < nodes_.count() && end > begin; ++n) {
    if (n == nodes_.node) continue;
    const int peer = nodes_.rank(n, nodes_.local);
    const auto i = static_cast<std::size_t>(n);
    s->first.receive(peer, s->from.data() + s->part_bytes * i, s->part_bytes);
    if (s->whole)
      s->first.send(peer, mine, s->part_bytes);
    else
      s->first.send(peer, mine + s->wire[i], s->wire[i + 1] - s->wire[i]);
  }
  slices_.push_back(std::move(s));
}

/// All nodes' shares of this rank's part are here: reduce it into the result ring, in the order of the nodes.
void BetweenNodes::reduce(Slice& s) {
  const std::size_t mine = s.begin + part(s, nodes_.node), end = s.begin + part_end(s, nodes_.node);
  const auto me = static_cast<std::size_t>(nodes_.node);
  std::vector<const void*> source(static_cast<std::size_t>(nodes_.count()));
  std::size_t wire = 0;  // of the piece, within the part
  stream_->pieces(mine, end, [&](const Item& item, std::size_t, std::size_t at, std::size_t bytes) {
    unsigned char* result = s.data + (at - s.begin);
    if (s.wide.empty()) wire = at - mine;
    for (std::size_t n = 0; n < source.size(); ++n) source[n] = s.from.data() + s.part_bytes * n + wire;
    source[me] = s.wide.empty() ? result : s.wide.data() + (s.whole ? 0 : s.wire[me]) + wire;
    const ReduceFn reduce = item.wide.element_bytes ? item.wide.whole : item.reduce;
    reduce(source.data(), nodes_.count(), result, bytes / item.element_bytes,
           Scale{1, item.scale.after, item.scale.divisor});
    wire += item.wire_bytes(bytes);
  });
  s.reduced = true;
}

void BetweenNodes::send_round(Slice& s) {
  const std::size_t mine = part(s, nodes_.node), length = part_end(s, nodes_.node) - mine;
  for (int n = 0; n < nodes_.count(); ++n) {
    if (n == nodes_.node) continue;
    const int peer = nodes_.rank(n, nodes_.local);
    s.second.receive(peer, s.data + part(s, n), part_end(s, n) - part(s, n));
    s.second.send(peer, s.data + mine, length);
  }
}

bool BetweenNodes::finished() {
  if (slices_.empty()) return false;
  // In order, so that both ends of every pair start their second rounds in the same sequence: receives match by order.
  for (auto& s : slices_) {
    if (s->reduced) continue;
    if (!s->first.done()) break;
    reduce(*s);
    if (!s->whole) send_round(*s);
  }
  if (!slices_.front()->reduced || !slices_.front()->second.done()) return false;
  if (slices_.front()->from.size() <= most_kept_bytes) spare_.push_back(std::move(slices_.front()));
  slices_.pop_front();
  return true;
}

void BetweenNodes::drop() {
  for (auto& s : slices_) (void)s.release();  // a message may still arrive there
  slices_.clear();
}

}  // namespace hvd::ops

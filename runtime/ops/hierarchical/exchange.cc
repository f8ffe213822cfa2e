#include "ops/hierarchical/exchange.h"

#include <algorithm>
#include <cstring>

namespace hvd::ops {
namespace {

constexpr std::size_t two_rounds_from = 32 << 10;

}  // namespace

std::size_t Exchange::part(const Slice& s, int n) const {
  if (s.whole) return 0;
  const std::size_t length = s.end - s.begin;
  const auto count = static_cast<std::size_t>(nodes_.count());
  const std::size_t each = ((length + count - 1) / count + 63) / 64 * 64;
  return std::min(length, each * static_cast<std::size_t>(n));
}

void Exchange::start(std::uint64_t, unsigned char* data, std::size_t begin, std::size_t end) {
  auto s = std::make_unique<Slice>(transport_);
  s->data = data;
  s->begin = begin;
  s->end = end;
  s->whole = nodes_.count() == 2 || end - begin < two_rounds_from;
  s->part_bytes = part_end(*s, nodes_.node) - part(*s, nodes_.node);
  s->from.resize(s->part_bytes * static_cast<std::size_t>(nodes_.count()));
  for (int n = 0; n < nodes_.count() && end > begin; ++n) {
    if (n == nodes_.node) continue;
    const int peer = nodes_.rank(n, nodes_.local);
    s->first.receive(peer, s->from.data() + s->part_bytes * static_cast<std::size_t>(n), s->part_bytes);
    s->first.send(peer, data + part(*s, n), part_end(*s, n) - part(*s, n));
  }
  slices_.push_back(std::move(s));
}

/// All nodes' shares of this rank's part are here: reduce it in place, in the order of the nodes.
void Exchange::reduce(Slice& s) {
  const std::size_t mine = s.begin + part(s, nodes_.node);
  std::vector<const void*> source(static_cast<std::size_t>(nodes_.count()));
  stream_->pieces(mine, mine + s.part_bytes, [&](const Item& item, std::size_t, std::size_t at, std::size_t bytes) {
    unsigned char* result = s.data + (at - s.begin);
    for (std::size_t n = 0; n < source.size(); ++n) source[n] = s.from.data() + s.part_bytes * n + (at - mine);
    source[static_cast<std::size_t>(nodes_.node)] = result;
    item.reduce(source.data(), nodes_.count(), result, bytes / item.element_bytes, item.whole);
  });
  s.reduced = true;
}

void Exchange::send_round(Slice& s) {
  for (int n = 0; n < nodes_.count(); ++n) {
    if (n == nodes_.node) continue;
    const int peer = nodes_.rank(n, nodes_.local);
    s.second.receive(peer, s.data + part(s, n), part_end(s, n) - part(s, n));
    s.second.send(peer, s.data + part(s, nodes_.node), s.part_bytes);
  }
}

bool Exchange::finished() {
  if (slices_.empty()) return false;
  // In order, so that both ends of every pair start their second rounds in the same sequence: receives match by order.
  for (auto& s : slices_) {
    if (s->reduced) continue;
    if (!s->first.done()) break;
    reduce(*s);
    if (!s->whole) send_round(*s);
  }
  if (!slices_.front()->reduced || !slices_.front()->second.done()) return false;
  slices_.pop_front();
  return true;
}

void Exchange::drop() {
  for (auto& s : slices_) (void)s.release();  // a message may still arrive there
  slices_.clear();
}

}  // namespace hvd::ops

#include "ops/allreduce/between_nodes.h"

#include <algorithm>

namespace hvd::ops {
namespace {

constexpr std::size_t most_kept_bytes = 4 << 20;  ///< a finished slice with more memory than this is freed

}  // namespace

void BetweenNodes::begin(const Stream& stream, const Cut& cut) {
  stream_ = &stream;
  const auto carriers = static_cast<std::size_t>(cut.carriers);
  plan_ = ExchangePlan::choose(levels_of_order(nodes_.count(), nodes_.in_rank_order), cut.bytes / carriers,
                               cut.chunk / carriers, model_);
  most_slices_ = model_.slices_under_way(plan_.rounds(), cut.chunk / carriers);
}

int BetweenNodes::rank(int stage, int digit) const {
  return nodes_.rank(plan_.peer(nodes_.node, stage, digit), nodes_.local);
}

std::size_t BetweenNodes::wire_bytes(const Slice& s, Range r) const {
  if (s.wide.empty()) return r.second - r.first;
  std::size_t total = 0;
  stream_->pieces(s.begin + r.first, s.begin + r.second,
                  [&](const Item& item, std::size_t, std::size_t, std::size_t n) { total += item.wire_bytes(n); });
  return total;
}

std::size_t BetweenNodes::room_for_part(const Slice& s, int stage) const {
  return (wire_bytes(s, s.held[static_cast<std::size_t>(stage) + 1]) + 63) / 64 * 64;
}

/// The parts of the other nodes lie one after another; this node's own digit has no place.
unsigned char* BetweenNodes::from(Slice& s, int stage, int d) const {
  const auto place = static_cast<std::size_t>(d < digit(stage) ? d : d - 1);
  return s.from.data() + s.at[static_cast<std::size_t>(stage)] + room_for_part(s, stage) * place;
}

/// Slices are used again, because new memory costs a page fault for each 4 KiB.
std::unique_ptr<BetweenNodes::Slice> BetweenNodes::fresh() {
  if (spare_.empty()) return std::make_unique<Slice>();
  auto s = std::move(spare_.back());
  spare_.pop_back();
  s->round = 0;
  s->mine = nullptr;
  s->held.clear();
  s->at.clear();
  s->wide.clear();
  return s;
}

/// The slice ends with its last tensor, before the gap that follows.  All nodes get the same length.
unsigned char* BetweenNodes::expect(unsigned char* result, std::size_t begin, std::size_t end, bool tensors) {
  auto s = fresh();
  if (!result && s->own.size() < end - begin) s->own.resize(end - begin);
  s->result = result ? result : s->own.data();
  s->tensors = tensors;
  s->begin = s->end = begin;
  bool any_wide = false;
  stream_->pieces(begin, end, [&](const Item& item, std::size_t, std::size_t at, std::size_t bytes) {
    s->end = at + bytes;
    any_wide |= item.wide.element_bytes > 0;
  });
  s->held.emplace_back(0, s->end - s->begin);
  if (any_wide) {
    s->wide.resize(64);  // wire_bytes() takes a slice for wide if this is not empty
    s->wide.resize(wire_bytes(*s, s->held[0]));
  }
  for (int i = 0; i < plan_.stages(); ++i) s->held.push_back(plan_.part(s->held.back(), i, digit(i)));
  receive_all(*s);
  slices_.push_back(std::move(s));
  return slices_.back()->result;
}

void BetweenNodes::receive_all(Slice& s) {
  std::size_t room = 0;
  for (int i = 0; i < plan_.stages(); ++i) {
    s.at.push_back(room);
    room += room_for_part(s, i) * static_cast<std::size_t>(plan_.stage(i).group - 1);
  }
  if (s.from.size() < room) s.from.resize(room);
  for (auto* m : {&s.parts, &s.results}) {
    const auto tag = m == &s.parts ? transport::Tag::data : transport::Tag::second;
    while (m->size() < static_cast<std::size_t>(plan_.stages())) m->emplace_back(transport_, tag);
  }
  if (s.begin == s.end) return;  // this rank carries nothing, and may have no counterpart on other nodes
  for (int i = 0; i < plan_.stages(); ++i) {
    const auto k = static_cast<std::size_t>(i);
    const std::size_t bytes = wire_bytes(s, s.held[k + 1]);
    for (int d = 0; d < plan_.stage(i).group; ++d) {
      if (d == digit(i)) continue;
      s.parts[k].receive(rank(i, d), from(s, i, d), bytes);
      if (plan_.whole()) continue;
      // The result may lie where this node's part still waits to be sent.  Posting the receive now is safe: the peer
      // has this result only after it has received that part.
      const Range r = plan_.part(s.held[k], i, d);
      s.results[k].receive(rank(i, d), s.result + r.first, r.second - r.first);
    }
  }
}

unsigned char* BetweenNodes::wide() {
  const auto next = std::find_if(slices_.begin(), slices_.end(), [](const auto& s) { return !s->mine; });
  return (*next)->wide.empty() ? nullptr : (*next)->wide.data();
}

void BetweenNodes::start(const unsigned char* slice) {
  const auto next = std::find_if(slices_.begin(), slices_.end(), [](const auto& s) { return !s->mine; });
  (*next)->mine = (*next)->wide.empty() ? slice : (*next)->wide.data();
  enter(**next);
}

/// The messages of the slice's current round.
MessageSet& BetweenNodes::messages(Slice& s) const {
  const int stages = plan_.stages();
  return s.round < stages ? s.parts[static_cast<std::size_t>(s.round)]
                          : s.results[static_cast<std::size_t>(2 * stages - 1 - s.round)];
}

/// Sends this node's data of the slice's current round.
void BetweenNodes::enter(Slice& s) {
  if (s.begin == s.end) return;
  if (s.round < plan_.stages()) return send_parts(s, s.round);
  const int stage = 2 * plan_.stages() - 1 - s.round;
  const Range done = s.held[static_cast<std::size_t>(stage) + 1];
  for (int d = 0; d < plan_.stage(stage).group; ++d)
    if (d != digit(stage)) messages(s).send(rank(stage, d), s.result + done.first, done.second - done.first);
}

void BetweenNodes::send_parts(Slice& s, int stage) {
  const Range all = s.held[static_cast<std::size_t>(stage)];
  for (int d = 0; d < plan_.stage(stage).group; ++d) {
    if (d == digit(stage)) continue;
    const Range r = plan_.part(all, stage, d);
    messages(s).send(rank(stage, d), s.mine + wire_bytes(s, {0, r.first}), wire_bytes(s, r));
  }
}

/// Adds the parts of a stage, all of which have arrived.  In the last stage the sum is the result, in the dtype.
void BetweenNodes::reduce(Slice& s, int stage) {
  const ExchangePlan::ExchangeStage& group = plan_.stage(stage);
  const bool last = stage + 1 == plan_.stages();
  const Range r = s.held[static_cast<std::size_t>(stage) + 1];
  const int own = digit(stage);
  std::vector<unsigned char*> source(static_cast<std::size_t>(group.group));
  std::size_t wire = 0;  // offset of the piece on the wire, within the range
  const std::size_t begin = wire_bytes(s, {0, r.first});
  stream_->pieces(s.begin + r.first, s.begin + r.second,
                  [&](const Item& item, std::size_t from, std::size_t at, std::size_t bytes) {
                    unsigned char* result = s.result + (at - s.begin);
                    if (s.wide.empty()) wire = at - s.begin - r.first;
                    for (int d = 0; d < group.group; ++d)  // add_up() does not write to source[own]
                      source[static_cast<std::size_t>(d)] =
                          d == own ? const_cast<unsigned char*>(s.mine) + begin + wire : this->from(s, stage, d) + wire;
                    unsigned char* kept = s.wide.empty() ? result : s.wide.data() + begin + wire;
                    order_.add_up(NodeReduce(item), group.levels, source, own, kept, last ? result : kept,
                                  bytes / item.element_bytes, last);
                    if (item.check) [[unlikely]]
                      look(item, from, bytes / item.element_bytes, last ? result : kept,
                           last ? item.dtype : item.part_dtype(), stage, source);
                    wire += item.wire_bytes(bytes);
                  });
  if (s.wide.empty()) s.mine = s.result;
}

/// Looks at the sum of the first stage, if each node has one rank.  Otherwise ranks have looked at their inputs before
/// (ShmAllreduce), and later sums show nothing new.
void BetweenNodes::look(const Item& item, std::size_t from, std::size_t elements, const void* sum, DType sum_dtype,
                        int stage, std::span<unsigned char* const> source) {
  if (stage > 0 || !nodes_.alone()) return;
  std::vector<int> ranks;
  for (int d = 0; d < plan_.stage(0).group; ++d)
    ranks.push_back(d == digit(0) ? nodes_.rank(nodes_.node, nodes_.local) : rank(0, d));
  std::vector<const void*> inputs(source.begin(), source.end());
  if (plan_.stage(0).levels.size() > 1) inputs.clear();  // add_up() has overwritten them
  item.check->look({*item.name, from / item.element_bytes, elements, item.part_dtype(), sum_dtype}, sum, inputs, ranks);
}

bool BetweenNodes::finished() {
  int before = plan_.rounds();  // the round of the previous slice
  for (auto& s : slices_) {
    if (!s->mine) break;
    while (s->round < before && messages(*s).done()) {
      if (s->round < plan_.stages()) reduce(*s, s->round);
      if (++s->round < plan_.rounds()) enter(*s);
    }
    before = s->round;
  }
  if (slices_.empty() || slices_.front()->round < plan_.rounds()) return false;
  if (slices_.front()->from.size() + slices_.front()->own.size() <= most_kept_bytes)
    spare_.push_back(std::move(slices_.front()));
  slices_.pop_front();
  return true;
}

void BetweenNodes::drop() {
  for (auto& s : slices_) {
    if (s->tensors) {  // the caller may free its tensors: this abandons the messages
      s->parts.clear();
      s->results.clear();
    }
    (void)s.release();  // never freed: a message may still arrive in its memory
  }
  slices_.clear();
}

}  // namespace hvd::ops

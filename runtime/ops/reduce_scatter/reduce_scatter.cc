#include "ops/reduce_scatter/reduce_scatter.h"

#include <algorithm>
#include <cstring>

namespace hvd::ops {
namespace {

using memory::Progress;
constexpr std::size_t largest_block = 256 << 10, smallest_block = 1 << 10, block_budget = 2 << 20;

std::size_t whole_lines(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

ReduceScatter::ReduceScatter(Rings& rings, const Nodes& nodes, transport::Transport& transport,
                             std::vector<DividedTensor> tensors, ShardSink* sink)
    : rings_(rings),
      nodes_(nodes),
      transport_(transport),
      tensors_(std::move(tensors)),
      sink_(sink),
      me_(nodes.rank(nodes.node, nodes.local)),
      ranks_(static_cast<int>(nodes.node_of.size())),
      alone_(nodes.count() == 1) {
  for (int d = 0; d < ranks_; ++d) {
    std::size_t total = 0;
    for (const DividedTensor& t : tensors_) total += whole_lines(t.end(d, ranks_) - t.begin(d, ranks_));
    length_.push_back(total);
  }
  build();
  base_ = rings_.next;
  rings_.next += chunks_.size();
}

// ---- layout of shards, blocks and chunks

void ReduceScatter::build() {
  const std::size_t most = *std::max_element(length_.begin(), length_.end());
  block_ = most;
  if (!alone_) {
    const std::size_t share = block_budget / static_cast<std::size_t>(nodes_.count()) / 64 * 64;
    block_ = std::min(most, std::clamp(share, smallest_block, largest_block));
    own_blocks_ = blocks(me_);
    own_ = pieces_for(me_);
  }
  const std::size_t count = block_ ? (most + block_ - 1) / block_ : 0;
  for (int l = 0; l < rings_.ranks; ++l) shards_.push_back(shard_of(l, count));
  build_chunks(count);
  if (alone_) return;
  std::size_t room = 0;
  for (const OutgoingBlock& p : outgoing_) room = std::max(room, p.staging + block_);
  staging_.resize(room);
  from_.resize(2 * static_cast<std::size_t>(nodes_.count()) * block_);
}

/// The data that rank @p d gets: its part of each tensor, in order, cut at the ends of blocks.
std::vector<ReduceScatter::Piece> ReduceScatter::pieces_for(int d) const {
  std::vector<Piece> all;
  std::size_t at = 0;
  for (std::uint32_t t = 0; t < tensors_.size(); ++t) {
    std::size_t offset = tensors_[t].begin(d, ranks_);
    const std::size_t end = tensors_[t].end(d, ranks_), next = at + whole_lines(end - offset);
    while (offset < end) {
      const std::size_t bytes = std::min(end - offset, block_ - at % block_);
      all.push_back({at, bytes, offset, t});
      offset += bytes;
      at += bytes;
    }
    at = next;
  }
  return all;
}

/// The shard of local rank @p l: for each block, the parts of all ranks for which @p l reduces.
ReduceScatter::Shard ReduceScatter::shard_of(int l, std::size_t blocks) {
  Shard shard;
  std::vector<int> ranks;
  for (int n = 0; n < nodes_.count(); ++n)
    for (int d : nodes_.ranks[static_cast<std::size_t>(n)])
      if (nodes_.relay(d, nodes_.node) == l) ranks.push_back(d);
  std::vector<std::vector<Piece>> pieces;
  for (int d : ranks) pieces.push_back(pieces_for(d));
  std::vector<std::size_t> next(ranks.size());
  for (std::size_t b = 0; b < blocks; ++b) {
    shard.blocks.push_back(shard.bytes);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const std::size_t begin = b * block_, end = std::min(begin + block_, length(ranks[i]));
      if (begin >= end) continue;
      for (; next[i] < pieces[i].size() && pieces[i][next[i]].at < end; ++next[i]) {
        Piece p = pieces[i][next[i]];
        p.at = p.at - begin + shard.bytes;
        shard.pieces.push_back(p);
      }
      if (l == nodes_.local && !alone_)
        outgoing_.push_back(
            {shard.bytes, shard.bytes + (end - begin), ranks[i], ((b & 1) * ranks.size() + i) * block_, b});
      shard.bytes += end - begin;
    }
  }
  shard.blocks.push_back(shard.bytes);
  return shard;
}

/// Divides the blocks into chunks.  A chunk holds at most a quarter of each shard, so that copying and reducing
/// overlap.  If a buffer of the ring would then have less than 32 KiB, a chunk holds more.
void ReduceScatter::build_chunks(std::size_t blocks) {
  std::size_t most = 0;
  for (const Shard& shard : shards_) most = std::max(most, shard.bytes);
  const std::size_t ranks = static_cast<std::size_t>(rings_.ranks), limit = rings_.chunk_bytes() / ranks / 64 * 64;
  width_ = std::min(limit, std::max(whole_lines(most / 4), whole_lines((32 << 10) / ranks)));
  for (std::size_t b = 0; b < blocks; ++b) {
    std::size_t longest = 0;
    for (const Shard& shard : shards_) longest = std::max(longest, shard.blocks[b + 1] - shard.blocks[b]);
    for (std::size_t from = 0; from < longest; from += width_) chunks_.push_back({b, from});
  }
}

std::pair<std::size_t, std::size_t> ReduceScatter::part(const Shard& shard, const Chunk& c) const {
  const std::size_t end = shard.blocks[c.block + 1], begin = std::min(end, shard.blocks[c.block] + c.from);
  return {begin, std::min(end, begin + width_)};
}

/// Calls f(piece, offset in the tensor, position in the shard, length) for each part of a piece within [begin, end).
template <class F>
void ReduceScatter::each(const std::vector<Piece>& pieces, std::size_t begin, std::size_t end, F&& f) {
  auto i = std::upper_bound(pieces.begin(), pieces.end(), begin,
                            [](std::size_t at, const Piece& p) { return at < p.at + p.bytes; });
  for (; i != pieces.end() && i->at < end; ++i) {
    const std::size_t from = std::max(begin, i->at), to = std::min(end, i->at + i->bytes);
    f(*i, i->offset + (from - i->at), from, to - from);
  }
}

// ---- within the node

bool ReduceScatter::step() {
  bool moved = false;
  if (in_ < chunks_.size() && rings_.may_write_ring(base_ + in_)) {
    copy_in(in_++);
    rings_.post(&Progress::in, base_ + in_);
    moved = true;
  }
  if (used_ < in_ && may_stage(chunks_[used_].block) && rings_.all(&Progress::in, base_ + used_ + 1)) {
    reduce(used_++);
    rings_.post(&Progress::used, base_ + used_);
    rings_.post(&Progress::reduced, base_ + used_);
    rings_.post(&Progress::out, base_ + used_);
    moved = true;
  }
  return alone_ ? moved : step_messages() || moved;
}

void ReduceScatter::copy_in(std::size_t k) {
  for (int l = 0; l < rings_.ranks; ++l) {
    if (l == rings_.me) continue;
    unsigned char* ring = rings_.node.ring(rings_.me, base_ + k) + width_ * static_cast<std::size_t>(l);
    const auto [begin, end] = part(shard(l), chunks_[k]);
    each(shard(l).pieces, begin, end,
         [&, begin = begin](const Piece& p, std::size_t offset, std::size_t at, std::size_t bytes) {
           rings_.put(ring + (at - begin), tensors_[p.which].item.in + offset, bytes);
         });
  }
}

void ReduceScatter::reduce(std::size_t k) {
  const Shard& mine = shard(rings_.me);
  const auto [begin, end] = part(mine, chunks_[k]);
  const std::size_t place = width_ * static_cast<std::size_t>(rings_.me);
  const unsigned char* ring[memory::most_ranks];
  const void* source[memory::most_ranks];
  for (int r = 0; r < rings_.ranks; ++r) ring[r] = rings_.node.ring(r, base_ + k) + place;
  each(mine.pieces, begin, end,
       [&, begin = begin](const Piece& p, std::size_t offset, std::size_t at, std::size_t bytes) {
         const Item& t = tensors_[p.which].item;
         for (int r = 0; r < rings_.ranks; ++r) source[r] = r == rings_.me ? t.in + offset : ring[r] + (at - begin);
         if (alone_) {
           last(p, offset, bytes, source, rings_.ranks, t.scale);
           return;
         }
         send_finished(at);
         const OutgoingBlock& to = outgoing_[next_outgoing_];
         unsigned char* const sum = staging_.data() + to.staging + (at - to.begin);
         t.reduce(source, rings_.ranks, sum, bytes / t.element_bytes, Scale{t.scale.before, 1, 1, t.scale.weights});
         t.look(offset, bytes, sum, source, rings_.ranks, t.dtype);
       });
  if (!alone_) send_finished(end);
}

/// Reduces a piece of this rank's own part into the result, or gives its @p n inputs to the sink.
void ReduceScatter::last(const Piece& p, std::size_t offset, std::size_t bytes, const void* const* src, int n,
                         const Scale& scale) {
  const DividedTensor& t = tensors_[p.which];
  if (sink_) return sink_->take(p.which, offset, src, n, bytes);
  unsigned char* const sum = t.item.out + (offset - t.begin(me_, ranks_));
  t.item.reduce(src, n, sum, bytes / t.item.element_bytes, scale);
  if (alone_) t.item.look(offset, bytes, sum, src, n, t.item.dtype);  // else reduce() has looked at the nodes' sums
}

// ---- across nodes

/// True if the staging memory for block @p b is free.  Block b uses the memory of block b - 2.  So block b - 2 must be
/// finished: its messages are sent, and this rank has combined its own part.
bool ReduceScatter::may_stage(std::size_t b) const {
  if (alone_ || b < 2) return true;
  return (sends_.empty() || sends_.front().block > b - 2) && combined_ >= std::min(own_blocks_, b - 1);
}

/// Sends the blocks that are complete.  This rank's shard is reduced over its node up to @p shard_end.
void ReduceScatter::send_finished(std::size_t shard_end) {
  for (; next_outgoing_ < outgoing_.size() && outgoing_[next_outgoing_].end <= shard_end; ++next_outgoing_) {
    const OutgoingBlock& p = outgoing_[next_outgoing_];
    if (p.to == me_) {
      own_staging_[p.block & 1] = p.staging;
      reduced_own_ = p.block + 1;
      continue;
    }
    sends_.push_back({p.block, std::make_unique<MessageSet>(transport_)});
    sends_.back().messages->send(p.to, staging_.data() + p.staging, p.end - p.begin);
  }
}

bool ReduceScatter::step_messages() {
  bool moved = false;
  for (; asked_ < own_blocks_ && asked_ < combined_ + 2; ++asked_) {
    receives_.push_back(std::make_unique<MessageSet>(transport_));
    const std::size_t bytes = std::min(block_, length(me_) - asked_ * block_);
    for (int n = 0; n < nodes_.count(); ++n)
      if (n != nodes_.node) receives_.back()->receive(nodes_.rank(n, nodes_.relay(me_, n)), received(asked_, n), bytes);
    moved = true;
  }
  while (combined_ < reduced_own_ && receives_.front()->done()) {
    combine(combined_++);
    receives_.pop_front();
    moved = true;
  }
  while (!sends_.empty() && sends_.front().messages->done()) {
    sends_.pop_front();
    moved = true;
  }
  return moved;
}

/// Combines block @p b of this rank's part, which has arrived from all nodes, in the order of the nodes.
void ReduceScatter::combine(std::size_t b) {
  const unsigned char* mine = staging_.data() + own_staging_[b & 1];
  std::vector<const void*> source(static_cast<std::size_t>(nodes_.count()));
  each(own_, b * block_, std::min((b + 1) * block_, length(me_)),
       [&](const Piece& p, std::size_t offset, std::size_t at, std::size_t bytes) {
         for (int n = 0; n < nodes_.count(); ++n)
           source[static_cast<std::size_t>(n)] = (n == nodes_.node ? mine : received(b, n)) + (at - b * block_);
         const Scale& scale = tensors_[p.which].item.scale;
         last(p, offset, bytes, source.data(), nodes_.count(), Scale{1, scale.after, scale.divisor});
       });
}

}  // namespace hvd::ops

/// @file reduce_scatter.h — every rank gets its own part of many tensors, combined over all ranks.  Implements
/// reducescatter and the first pass of Adasum.
///
/// Each tensor is divided among the ranks.  A rank's shard is the data that it reduces within its node, without gaps.
///
/// On one node, the shard is the rank's own part of every tensor.  Each rank copies the other ranks' shards from its
/// tensors into its ring.  Then the rank combines its own shard over all ranks, in rank order.  The rank reads its own
/// input straight from the tensor.  Results are not sent to other ranks.
///
/// With several nodes, a shard also holds parts for ranks of other nodes (Nodes::relay()).  The rank reduces such a
/// part over its node and sends the sum to the part's owner, block by block.  The owner combines the blocks in node
/// order.  So each byte crosses the network once.  Staging takes a few blocks, for tensors of any size.  All shards of
/// a node are in the same block at the same time.  So two nodes never wait for each other in opposite orders.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "ops/message_set.h"
#include "ops/nodes.h"
#include "ops/shm/rings.h"
#include "ops/stage.h"

namespace hvd::ops {

/// Receives the inputs of this rank's part, instead of a reduction into a tensor (adasum.h).
class ShardSink {
 public:
  virtual ~ShardSink() = default;
  /// @param which   index of the tensor
  /// @param offset  byte offset in the tensor.  Offsets ascend.  The distance from the start of this rank's part is a
  ///                multiple of 64
  /// @param src     [n] inputs of @p bytes each: those of all ranks, or with several nodes the sums of the nodes
  virtual void take(std::size_t which, std::size_t offset, const void* const* src, int n, std::size_t bytes) = 0;
};

/// A tensor, divided among the ranks in `units` of equal size; the last unit may be shorter.  If the units do not
/// divide evenly, each of the first ranks gets one unit more.
struct DividedTensor {
  Item item;  ///< item.out holds this rank's part only; a sink leaves it unused
  std::int64_t units = 0;
  std::size_t unit_bytes = 0;  ///< 0: the tensor is a whole number of units

  /// The first byte of the part of rank @p d of @p ranks.
  std::size_t begin(int d, int ranks) const {
    if (units == 0) return 0;
    const std::int64_t at = units / ranks * d + std::min<std::int64_t>(d, units % ranks);
    const std::size_t unit = unit_bytes ? unit_bytes : item.bytes / static_cast<std::size_t>(units);
    return std::min(item.bytes, static_cast<std::size_t>(at) * unit);
  }
  std::size_t end(int d, int ranks) const { return begin(d + 1, ranks); }
};

/// Size: a plan that is built once, and six counters of progress.  Each step reads both.
class ReduceScatter final : public Stage {
 public:
  ReduceScatter(Rings& rings, const Nodes& nodes, transport::Transport& transport, std::vector<DividedTensor> tensors,
                ShardSink* sink = nullptr);
  bool step() override;
  bool done() const override { return used_ == chunks_.size() && combined_ == own_blocks_ && sends_.empty(); }

 private:
  /// A piece of a tensor within a shard.
  struct Piece {
    std::size_t at, bytes, offset;  ///< at: in the shard, a multiple of 64; offset: in the tensor
    std::uint32_t which;            ///< index of the tensor
  };
  struct Shard {
    std::vector<Piece> pieces;
    std::vector<std::size_t> blocks;  ///< [blocks + 1]: where each block begins
    std::size_t bytes = 0;
  };
  /// The part of a block of this rank's shard that belongs to one rank.
  struct OutgoingBlock {
    std::size_t begin, end;      ///< in the shard
    int to;                      ///< the rank that owns it
    std::size_t staging, block;  ///< offset in staging_; number of the block
  };
  struct Chunk {
    std::size_t block, from;  ///< from: bytes from the start of the block, in each shard
  };
  struct Sending {
    std::size_t block;
    std::unique_ptr<MessageSet> messages;
  };

  std::vector<Piece> pieces_for(int d) const;
  void build();
  Shard shard_of(int l, std::size_t blocks);
  void build_chunks(std::size_t blocks);
  template <class F>
  static void each(const std::vector<Piece>& pieces, std::size_t begin, std::size_t end, F&& f);
  /// The range [begin, end) of a shard that belongs to a chunk.
  std::pair<std::size_t, std::size_t> part(const Shard& shard, const Chunk& c) const;
  void copy_in(std::size_t k);
  void reduce(std::size_t k);
  void last(const Piece& p, std::size_t offset, std::size_t bytes, const void* const* src, int n, const Scale& scale);
  bool step_messages();
  void send_finished(std::size_t shard_end);
  void combine(std::size_t b);
  bool may_stage(std::size_t b) const;
  Shard& shard(int l) { return shards_[static_cast<std::size_t>(l)]; }
  std::size_t length(int d) const { return length_[static_cast<std::size_t>(d)]; }
  std::size_t blocks(int d) const { return block_ ? (length(d) + block_ - 1) / block_ : 0; }
  unsigned char* received(std::size_t b, int n) {
    return from_.data() + ((b & 1) * static_cast<std::size_t>(nodes_.count()) + static_cast<std::size_t>(n)) * block_;
  }

  Rings& rings_;
  const Nodes& nodes_;
  transport::Transport& transport_;
  const std::vector<DividedTensor> tensors_;
  ShardSink* const sink_;
  const int me_, ranks_;
  const bool alone_;                     ///< there is only one node
  std::size_t block_ = 0;                ///< bytes of a block for one rank
  std::vector<std::size_t> length_;      ///< [size] bytes that each rank gets
  std::vector<Shard> shards_;            ///< [local ranks]
  std::vector<OutgoingBlock> outgoing_;  ///< of this rank's shard; empty on one node
  std::vector<Piece> own_;               ///< the data that this rank gets, cut at blocks; empty on one node
  std::vector<Chunk> chunks_;
  std::size_t width_ = 64;  ///< most bytes of one shard in a chunk
  std::uint64_t base_ = 0;
  std::size_t in_ = 0, used_ = 0, next_outgoing_ = 0;
  std::size_t own_blocks_ = 0, own_staging_[2] = {}, reduced_own_ = 0, asked_ = 0, combined_ = 0;
  std::vector<unsigned char> staging_;  ///< [2][ranks that this rank reduces for][block_]: sums over this node
  std::vector<unsigned char> from_;     ///< [2][nodes][block_]: blocks received from other nodes
  std::deque<Sending> sends_;
  std::deque<std::unique_ptr<MessageSet>> receives_;
};

}  // namespace hvd::ops

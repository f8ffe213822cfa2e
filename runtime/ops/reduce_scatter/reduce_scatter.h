/// @file reduce_scatter.h — every rank gets its own part of many tensors, combined over all ranks: the pass under
/// reducescatter.
///
/// Each tensor is divided among the ranks; the parts for one rank, laid end to
/// end, are its shard.  Within a node each rank copies into its ring what the
/// others combine, and combines its own shard over all of them in rank order, its
/// own part straight from the tensor.  No result goes round.
///
/// Across nodes the shard of a rank of another node is reduced by one rank here
/// and sent to it, block by block; it combines what the nodes sent, in their
/// order.  So each byte crosses once, and staging is a few blocks at any size.
/// All shards of a node are in the same block at the same time: two nodes can
/// never wait for each other in opposite orders.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "ops/message_set.h"
#include "ops/nodes.h"
#include "ops/shm/rings.h"
#include "ops/stage.h"

namespace hvd::ops {

/// Receives what a rank's shard holds instead of a reduction; see adasum.h.
class ShardSink {
 public:
  virtual ~ShardSink() = default;
  /// @p src: [n] the pieces of all ranks (or nodes) at @p offset bytes of tensor @p which, @p bytes long.  Offsets are
  /// multiples of 64 from where the part of this rank begins, and ascend.
  virtual void take(std::size_t which, std::size_t offset, const void* const* src, int n, std::size_t bytes) = 0;
};

/// A tensor and how it is divided: `units` of equal size (the last may be shorter), the first ranks get one more where
/// they do not divide.
struct DividedTensor {
  Item item;  ///< out: this rank's part; unused with a sink
  std::int64_t units = 0;
  std::size_t unit_bytes = 0;  ///< 0: the tensor is a whole number of units

  /// The part of rank @p d of @p ranks.
  std::size_t begin(int d, int ranks) const {
    if (units == 0) return 0;
    const std::int64_t at = units / ranks * d + std::min<std::int64_t>(d, units % ranks);
    const std::size_t unit = unit_bytes ? unit_bytes : item.bytes / static_cast<std::size_t>(units);
    return std::min(item.bytes, static_cast<std::size_t>(at) * unit);
  }
  std::size_t end(int d, int ranks) const { return begin(d + 1, ranks); }
};

class ReduceScatter final : public Stage {
 public:
  ReduceScatter(Rings& rings, const Nodes& nodes, transport::Transport& transport, std::vector<DividedTensor> tensors,
                ShardSink* sink = nullptr);
  bool step() override;
  bool done() const override { return used_ == chunks_.size() && combined_ == own_blocks_ && sends_.empty(); }

 private:
  /// Part of a tensor within a shard; `at` as in Stream, a multiple of 64.
  struct Piece {
    std::size_t at, bytes, offset;  ///< offset: in the tensor
    std::uint32_t which;
  };
  struct Shard {
    std::vector<Piece> pieces;
    std::vector<std::size_t> blocks;  ///< [blocks + 1]: where each begins
    std::size_t bytes = 0;
  };
  /// A block of this rank's shard for one rank: where it ends in the shard, and where it lies in the staging.
  struct OutgoingBlock {
    std::size_t begin, end;
    int to;
    std::size_t staging, block;
  };
  struct Chunk {
    std::size_t block, from;  ///< bytes from where the block begins in each shard
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
  /// What of a shard belongs to a chunk: [begin, end).
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
  const bool alone_;                     ///< one node
  std::size_t block_ = 0;                ///< bytes of a block for one rank
  std::vector<std::size_t> length_;      ///< [size] of what each rank gets
  std::vector<Shard> shards_;            ///< [local ranks]
  std::vector<OutgoingBlock> outgoing_;  ///< of this rank's shard, when there are several nodes
  std::vector<Piece> own_;               ///< what this rank gets, cut at blocks
  std::vector<Chunk> chunks_;
  std::size_t width_ = 64;  ///< of a shard in a chunk
  std::uint64_t base_ = 0;
  std::size_t in_ = 0, used_ = 0, next_outgoing_ = 0;
  std::size_t own_blocks_ = 0, own_staging_[2] = {}, reduced_own_ = 0, asked_ = 0, combined_ = 0;
  std::vector<unsigned char> staging_;  ///< [2][outgoing blocks of a block][block_]: what this rank reduced
  std::vector<unsigned char> from_;     ///< [2][nodes][block_]: what came for this rank
  std::deque<Sending> sends_;
  std::deque<std::unique_ptr<MessageSet>> receives_;
};

}  // namespace hvd::ops

/// @file shm.h — allreduce within a node, streamed through the rings.
///
/// Each chunk is divided into slices, one for each carrier.  A rank copies into its ring the slices that other ranks
/// reduce.  The rank adds up its own slice over all ranks, in rank order.  The rank reads its own input straight from
/// the tensor.  Then the rank copies the other ranks' finished slices out.  The order of addition depends on the ranks
/// only.  So the bits are the same however tensors are fused.
#pragma once
#include <algorithm>
#include <deque>
#include <memory>

#include "ops/shm/rings.h"
#include "ops/stage.h"

namespace hvd::ops {

/// Processes each reduced slice before it is published to the node: the exchange with other nodes (between_nodes.h).
/// On one node there is no hook.
class SliceHook {
 public:
  virtual ~SliceHook() = default;
  /// Returns true if slices may lie in the caller's tensors.  After a failed operation the tensors belong to the caller
  /// again.  A hook that returns true must be able to stop using the tensors at once.
  virtual bool takes_tensors() const = 0;
  /// The number of slices, at least 2, that may be expected and not finished at the same time.
  virtual std::uint64_t most_slices() const = 0;
  /// Announces the next slice, [begin, end) of the stream, which may be empty.  Called before the slice is reduced, in
  /// the order of the slices.  Returns the address where its result will be.
  /// @param result   memory for the result; nullptr: the hook provides it.  The hook's memory is valid until the first
  ///                 expect() after this slice has finished
  /// @param tensors  @p result is the memory of a tensor
  virtual unsigned char* expect(unsigned char* result, std::size_t begin, std::size_t end, bool tensors) = 0;
  /// Called before the next slice is reduced.  Some tensors need parts wider than their dtype.  If the slice has such a
  /// tensor, returns memory for all parts, one after another, each with Item::wire_bytes().  nullptr: the parts go to
  /// the memory of the result.
  virtual unsigned char* wide() = 0;
  /// The next slice is reduced over this node.  The sum lies in the memory that wide() gave, else at @p slice.
  virtual void start(const unsigned char* slice) = 0;
  /// True once for each slice, in order, when the slice is reduced over all nodes and scaled.
  virtual bool finished() = 0;
};

class ShmAllreduce final : public Stage {
 public:
  explicit ShmAllreduce(Rings& rings) : rings_(rings) {}
  /// Returns the division of the stream into chunks and slices, for begin().
  /// @param carriers  number of this node's ranks that reduce a slice, from local rank 0 on.  On one node: all
  /// @param slice     most bytes of a slice; 0: as many as the ring has room for
  Cut cut(const Stream& stream, int carriers, std::size_t slice = 0) const {
    const std::size_t room = rings_.chunk_bytes(), chunk = slice * static_cast<std::size_t>(carriers);
    return Cut::of(stream.bytes, chunk > 0 ? std::min(chunk, room) : room, carriers);
  }
  /// Like cut(), for one carrier on each node, with a hook.
  /// @param alone  no node has more than one rank, so the rings are not used
  Cut cut_at_tensors(const Stream& stream, bool alone, std::size_t slice = 0) const {
    constexpr std::size_t most_whole = 1 << 20;  // measured: for smaller tensors one round is faster than overlap
    const std::size_t room = rings_.chunk_bytes();
    if (slice > 0) {
      const std::size_t most = alone ? slice : std::min(slice, room);
      return Cut::at_tensors(stream, most, most);
    }
    return Cut::at_tensors(stream, room, alone ? most_whole : room);
  }
  /// @p stream and @p hook must stay valid until done().  @p hook: nullptr on one node.
  void begin(const Stream& stream, const Cut& cut, SliceHook* hook);
  bool step() override;
  bool done() const override { return out_ == cut_.chunks(); }
  /// True if this rank has copied its first chunk into the ring.
  bool entered() const { return in_ > 0; }
  /// Copies [begin, end) of the stream's result from shared memory to @p to, after done().  False: some of it is no
  /// longer there.  True also while another rank writes there again, so the caller must check the bytes.
  bool result_again(std::size_t begin, std::size_t end, unsigned char* to) const;
  /// True if this rank has reduced its last slice.
  bool reduced() const { return reduced_ == cut_.chunks(); }

 private:
  void copy_in(std::uint64_t k);
  void reduce(std::uint64_t k);
  void reduce_part(std::uint64_t k);
  void copy_out(std::uint64_t k);
  bool step_reduce();
  bool may_reduce() const;
  void expect();
  /// The tensor that holds all of this rank's slice of chunk k, if this node does not change the slice.  Nodes then
  /// exchange the slice straight from and to the tensor.  nullptr: there is no such tensor.
  const Item* tensor_of(std::uint64_t k) const;
  void publish(std::uint64_t k);
  /// This rank's slice of chunk k; empty if this rank is no carrier.
  std::size_t my_begin(std::uint64_t k) const { return cut_.slice(k, std::min(rings_.me, cut_.carriers)); }
  std::size_t my_end(std::uint64_t k) const { return cut_.slice(k, std::min(rings_.me + 1, cut_.carriers)); }

  Rings& rings_;
  const Stream* stream_ = nullptr;
  SliceHook* hook_ = nullptr;
  Cut cut_{0, 64, 1, {}};
  std::deque<unsigned char*> places_;  ///< addresses of the results of the slices [reduced_, expected_); with a hook
  std::uint64_t base_ = 0, in_ = 0, expected_ = 0, used_ = 0, reduced_ = 0, out_ = 0;
  bool streaming_out_ = false;
};

}  // namespace hvd::ops

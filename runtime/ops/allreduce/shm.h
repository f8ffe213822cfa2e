/// @file shm.h — allreduce within a node, streamed through the rings.
///
/// Each rank copies in only what others reduce, adds its own slice over all
/// ranks in rank order (its own part straight from the tensor), and copies the
/// others' finished slices out.  So the order of addition of an element depends
/// on nothing but the ranks: the bits are the same however tensors were fused.
#pragma once
#include <algorithm>
#include <deque>
#include <memory>

#include "ops/shm/rings.h"
#include "ops/stage.h"

namespace hvd::ops {

/// What happens to a finished slice before it is published to the node: nothing on one node, the exchange with other
/// nodes when there are several (between_nodes.h).
class SliceHook {
 public:
  virtual ~SliceHook() = default;
  /// Slices may lie in tensors, which belong to the caller again once an operation has failed.
  virtual bool takes_tensors() const = 0;
  /// So many slices may be expected that have not finished, at least 2.
  virtual std::uint64_t most_slices() const = 0;
  /// The next slice is [begin, end) of the stream, perhaps empty, and its result belongs to @p result.  Called ahead,
  /// in the order of the slices.  @p tensors: that is a tensor's own memory.  nullptr: to memory of the hook's own,
  /// valid until the next slice is expected after this one has finished.  Returns where the result will be.
  virtual unsigned char* expect(unsigned char* result, std::size_t begin, std::size_t end, bool tensors) = 0;
  /// Before the next slice is reduced: where its parts go one after the other, each Item::wire_bytes() long, when some
  /// of them are wider than the dtype; nullptr: to where its result belongs.
  virtual unsigned char* wide() = 0;
  /// The next slice lies at @p slice, reduced over this node, or where wide() has said.
  virtual void start(const unsigned char* slice) = 0;
  /// True when the oldest started slice is reduced over all nodes and scaled.
  virtual bool finished() = 0;
};

class ShmAllreduce final : public Stage {
 public:
  explicit ShmAllreduce(Rings& rings) : rings_(rings) {}
  /// @p stream must outlive the stage.
  /// How it is cut; carriers: how many of the node's first ranks reduce (all, on one node).  @p slice: of one of them,
  /// no more than that (0: what there is room for).
  Cut cut(const Stream& stream, int carriers, std::size_t slice = 0) const {
    const std::size_t room = rings_.chunk_bytes(), chunk = slice * static_cast<std::size_t>(carriers);
    return Cut::of(stream.bytes, chunk > 0 ? std::min(chunk, room) : room, carriers);
  }
  /// The same for one carrier a node, and a hook.  @p alone: no node has more than one rank, so the rings are not used.
  Cut cut_at_tensors(const Stream& stream, bool alone, std::size_t slice = 0) const {
    constexpr std::size_t most_whole = 1 << 20;  // measured: below, one round beats overlap
    const std::size_t room = rings_.chunk_bytes();
    if (slice > 0) {
      const std::size_t most = alone ? slice : std::min(slice, room);
      return Cut::at_tensors(stream, most, most);
    }
    return Cut::at_tensors(stream, room, alone ? most_whole : room);
  }
  void begin(const Stream& stream, const Cut& cut, SliceHook* hook);
  bool step() override;
  bool done() const override { return out_ == cut_.chunks(); }
  /// This rank's first chunk is in the ring; its last slice is reduced.
  bool entered() const { return in_ > 0; }
  bool reduced() const { return reduced_ == cut_.chunks(); }

 private:
  void copy_in(std::uint64_t k);
  void reduce(std::uint64_t k);
  void reduce_part(std::uint64_t k);
  void copy_out(std::uint64_t k);
  bool step_reduce();
  bool may_reduce() const;
  void expect();
  /// The one tensor that holds this rank's slice, where nothing is done to it on this node, so that nodes may exchange
  /// it from and to where it lies; nullptr: none does.
  const Item* tensor_of(std::uint64_t k) const;
  void publish(std::uint64_t k);
  /// This rank's slice of chunk k; empty when it is no carrier.
  std::size_t my_begin(std::uint64_t k) const { return cut_.slice(k, std::min(rings_.me, cut_.carriers)); }
  std::size_t my_end(std::uint64_t k) const { return cut_.slice(k, std::min(rings_.me + 1, cut_.carriers)); }

  Rings& rings_;
  const Stream* stream_ = nullptr;
  SliceHook* hook_ = nullptr;
  Cut cut_{0, 64, 1, {}};
  std::deque<unsigned char*> places_;  ///< of the results of the slices from reduced_ to expected_, with a hook
  std::uint64_t base_ = 0, in_ = 0, expected_ = 0, used_ = 0, reduced_ = 0, out_ = 0;
  bool streaming_out_ = false;
};

}  // namespace hvd::ops

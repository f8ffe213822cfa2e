/// @file shm.h — allreduce within a node, streamed through the rings.
///
/// Each rank copies in only what others reduce, adds its own slice over all
/// ranks in rank order (its own part straight from the tensor), and copies the
/// others' finished slices out.  So the order of addition of an element depends
/// on nothing but the ranks: the bits are the same however tensors were fused.
#pragma once
#include <memory>

#include "ops/shm/rings.h"
#include "ops/stage.h"

namespace hvd::ops {

/// What happens to a finished slice before it is published to the node: nothing on one node, the exchange with other
/// nodes when there are several (between_nodes.h).
class SliceHook {
 public:
  virtual ~SliceHook() = default;
  /// Before the slice is reduced: where its parts go one after the other, each Item::wire_bytes() long, when some of
  /// them are wider than the dtype; nullptr: to the result ring.
  virtual unsigned char* wide(std::size_t begin, std::size_t end) = 0;
  /// The slice [begin, end) of chunk @p k of this rank lies in the result ring at @p slice, reduced over this node.
  virtual void start(std::uint64_t k, unsigned char* slice, std::size_t begin, std::size_t end) = 0;
  /// True when the oldest started slice is reduced over all nodes and scaled.
  virtual bool finished() = 0;
};

class ShmAllreduce final : public Stage {
 public:
  explicit ShmAllreduce(Rings& rings) : rings_(rings) {}
  /// @p stream must outlive the stage.  carriers: how many of the node's first ranks reduce (all, on one node).
  void begin(const Stream& stream, int carriers, SliceHook* hook);
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
  void publish(std::uint64_t k);
  /// This rank's slice of chunk k; empty when it is no carrier.
  std::size_t my_begin(std::uint64_t k) const { return cut_.slice(k, std::min(rings_.me, cut_.carriers)); }
  std::size_t my_end(std::uint64_t k) const { return cut_.slice(k, std::min(rings_.me + 1, cut_.carriers)); }

  Rings& rings_;
  const Stream* stream_ = nullptr;
  SliceHook* hook_ = nullptr;
  Cut cut_{0, 64, 1};
  std::uint64_t base_ = 0, in_ = 0, used_ = 0, reduced_ = 0, out_ = 0;
  bool streaming_out_ = false;
};

}  // namespace hvd::ops

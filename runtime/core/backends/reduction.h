/// @file reduction.h — the allreduces of a batch: in place for tensors in registered memory, else through the rings.
#pragma once
#include <span>

#include "common/tuned_settings.h"
#include "common/world.h"
#include "core/backends/backend.h"
#include "core/operation/operation.h"
#include "ops/allreduce/between_nodes.h"
#include "ops/allreduce/direct.h"
#include "ops/allreduce/shm.h"
#include "ops/reduce_scatter/reduce_scatter.h"
#include "ops/shm/distance.h"
#include "ops/shm/rings.h"

namespace hvd::core {

/// The operation as the kernels see it.  @p check: looks at the sums, if they are sums of floating-point numbers.
ops::Item item_of(const Operation& op, ops::FiniteCheck* check = nullptr);
/// A reducescatter and how its rows are divided.  Sets the result's shape, and gets memory for this rank's part. Throws
/// Error{unavailable}.
ops::DividedTensor divided(Operation& op, const World& world, ops::FiniteCheck* check);

/// One object serves all batches, so known tensors need no allocation.
class Reduction final : public ops::Stage {
 public:
  Reduction(ops::Rings& rings, ops::Distance& distance, const ops::Nodes& nodes, transport::Transport& transport);

  /// Looks at all sums from now on.
  void look_with(ops::FiniteCheck* check) { check_ = check; }
  /// @p chosen: [ops] the backend of each operation
  void begin(std::span<Operation* const> ops, std::span<const Backend* const> chosen);
  /// New settings, used from the next begin() on.
  void tune(const TunedSettings& settings);
  bool step() override;
  bool done() const override { return allreduce_.done() && direct_.done(); }
  /// True when this rank's first chunk is in the ring.
  bool entered() const { return allreduce_.entered(); }
  /// True when this rank's last slice is reduced.
  bool reduced() const { return allreduce_.reduced(); }
  /// Copies [begin, end) of the result in @p out, of the last batch, from shared memory to @p to.  False: it is no
  /// longer there.  See ShmAllreduce::result_again().
  bool result_again(const void* out, std::size_t begin, std::size_t end, unsigned char* to) const;
  /// True if one node adds up each piece for all nodes.
  bool sums_once() const { return !between_nodes_.plan().whole(); }
  /// Forgets messages under way, after a lost peer.
  void drop();
  /// True if all ranks are on one node and have the tensor in registered memory.  All ranks return the same value.
  bool lies_registered(const Operation& op);

 private:
  ops::Rings& rings_;
  ops::Distance& distance_;
  const ops::Nodes& nodes_;
  ops::Stream stream_;
  ops::BetweenNodes between_nodes_;
  ops::ShmAllreduce allreduce_;
  ops::RegisteredTensors registered_;
  ops::DirectAllreduce direct_;
  std::size_t slice_ = 0;              ///< bytes of the largest slice between nodes; 0: the default
  ops::FiniteCheck* check_ = nullptr;  ///< nullptr: off
};

}  // namespace hvd::core

/// @file batch.h — the operations that run together, as a state object.
///
/// A batch has up to five parts, one after the other: what is reduced for
/// everybody, Adasum, what is reduced for one rank each, what is moved as it is, process
/// sets that come or go.  All
/// operations of a part share one pass through the rings.
#pragma once
#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/batch_rows.h"
#include "core/config.h"
#include "core/device.h"
#include "core/operation.h"
#include "core/reduction.h"
#include "core/widened.h"
#include "core/world.h"
#include "ops/reduce_scatter/reduce_scatter.h"
#include "ops/shm/distance.h"
#include "ops/shm/eager.h"
#include "ops/shm/rings.h"
#include "transport/transport.h"

namespace hvd::core {

class Batch {
 public:
  /// They have ended well.
  using End = std::function<void(std::span<Operation* const>)>;
  Batch(const World& world, const Config& config, const memory::Node& node, transport::Transport& transport,
        trace::Tracer& tracer, std::uint32_t& traced, std::atomic<bool>& gpu_busy, End end);

  /// Makes the stage of operations that are no collectives: set_change.
  using Special =
      std::function<std::unique_ptr<ops::Stage>(std::span<Operation* const>, ops::Rings&, const ops::Nodes&)>;
  void set_special(Special make) { special_ = std::move(make); }

  /// @p ops in the order of the coordinator; entry set.  eager: all inputs are in their slots.
  void begin(std::span<Operation* const> ops, bool eager);
  /// True when anything moved.  Ends operations as their part is done.
  bool step();
  bool running() const { return running_; }
  /// Work that was queued on the GPU has not ended there.
  bool on_device() const { return device_ && device_->running(); }
  /// Looks after it.  True when some has ended; throws Error when NCCL has failed.
  bool watch_device() { return device_ && device_->watch(); }
  /// What is on the GPU ends now, and its callers learn of it.
  void fail_device(int code, const std::string& text) {
    if (device_) device_->fail(code, text);
  }
  /// What process sets get of the device when they are made; nullptr: nothing.
  Device* device() { return device_.get(); }
  /// Of the world's device, before the first batch.
  void inherit(std::unique_ptr<InheritedGpu> inherited) { inherited_ = std::move(inherited); }
  /// After a lost peer: forgets everything under way, without ending operations.
  void drop();

 private:
  /// The first three are for tensors on GPUs: agree on how, run by NCCL, copy the others to the host.
  enum Kinds : std::size_t { agreed, by_nccl, copied, reduced, adapted, scattered, delivered, special, parts };
  struct Part {
    std::vector<Operation*> ops;
    std::uint32_t row = 0;
  };
  trace::Phase transfer() const;
  void run_eager(std::span<Operation* const> ops);
  void run_eager(Operation& op);
  ops::DividedTensor divide(Operation& op) const;
  void start();
  void finish();
  void sort(Operation& op);
  void sort_device(std::span<Operation* const> ops);
  bool step_device();
  void queue_rows();
  void trace_allreduce();
  std::unique_ptr<ops::Stage> stage_of(std::size_t part);
  std::unique_ptr<ops::Stage> adasum();
  std::unique_ptr<ops::Stage> reducescatter();
  std::unique_ptr<ops::Stage> delivery();
  void take_scattered();
  void take_delivered();

  const World& world_;
  const Config& config_;
  const memory::Node& node_;
  transport::Transport& transport_;
  trace::Tracer& tracer_;
  BatchRows rows_;
  std::atomic<bool>& gpu_busy_;
  End end_;
  Special special_;
  ops::EagerSlots slots_;
  const ops::Nodes nodes_;
  ops::Rings rings_;
  ops::Distance distance_;
  Reduction reduction_;
  std::deque<WideCopy> widened_;             ///< of the reducescatters
  std::unique_ptr<InheritedGpu> inherited_;  ///< until there is a device
  std::unique_ptr<Device> device_;           ///< from the first tensor on a GPU on
  std::array<Part, parts> parts_;
  std::size_t at_ = 0;                 ///< the part under way
  ops::Stage* stage_ = nullptr;        ///< of that part
  std::unique_ptr<ops::Stage> owned_;  ///< where the stage is made anew
  trace::Phase phase_ = trace::Phase::queue;
  bool running_ = false;
};

}  // namespace hvd::core

/// @file batch.h — the operations that run together, as a state object.
///
/// Each operation has a backend (backends.h).  The operations of backends with the same stage are a part of the batch:
/// they run together.  The parts run one after the other, in the order of the table of backends.  Before the first
/// batch with tensors on GPUs the ranks agree on how such tensors travel.
#pragma once
#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/world.h"
#include "core/batch/backends.h"
#include "core/batch/batch_rows.h"
#include "core/batch/device_operations.h"
#include "core/batch/reduction.h"
#include "core/batch/widened.h"
#include "core/operation/operation.h"
#include "core/settings/config.h"
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
        trace::Tracer& tracer, std::uint32_t& traced, gpu::Platform& gpus, std::atomic<bool>& gpu_busy,
        const std::function<void()>& wake, End end);

  /// Makes the stage of operations that are no collectives: set_change.
  using Special =
      std::function<std::unique_ptr<ops::Stage>(std::span<Operation* const>, ops::Rings&, const ops::Nodes&)>;
  /// Between two batches.
  void tune(const TunedSettings& settings) { reduction_.tune(settings); }
  void set_special(Special make) { special_ = std::move(make); }

  /// @p ops in the order of the coordinator; entry set.  eager: all inputs are in their slots.
  void begin(std::span<Operation* const> ops, bool eager);
  /// True when anything moved.  Ends operations as their part is done.
  bool step();
  bool running() const { return running_; }
  /// A device's own thread is at it, and wakes the engine's when there is something to step.
  bool will_be_woken() const { return running_ && unagreed_.empty() && is(make_on_device) && device_->wakes(); }
  /// Work that was queued on the GPU has not ended there.
  bool on_device() const { return device_ && device_->running(); }
  /// The same, after a look at the GPU.  May be asked often.
  bool device_busy() { return device_ && device_->busy(); }
  /// Looks after it.  True when some has ended; throws Error when NCCL has failed.
  bool watch_device() { return device_ && device_->watch(); }
  /// What is on the GPU ends now, and its callers learn of it.
  void fail_device(int code, const std::string& text) {
    if (device_) device_->fail(code, text);
  }
  /// What process sets get of the device when they are made; nullptr: nothing.
  gpu::SetDevice* device() { return device_.get(); }
  /// Of the world's device, before the first batch.
  void inherit(std::unique_ptr<gpu::DeviceInheritance> inherited) { inherited_ = std::move(inherited); }
  /// After a lost peer: forgets everything under way, without ending operations.
  void drop();

  /// @name The stages of the table of backends
  /// @{
  static constexpr std::size_t num_backends = 10;
  static ops::Stage* make_on_device(Batch& batch);
  static ops::Stage* make_pinned(Batch& batch);
  static ops::Stage* make_eager(Batch& batch);
  static ops::Stage* make_allreduce(Batch& batch);
  static ops::Stage* make_adasum(Batch& batch);
  static ops::Stage* make_reduce_scatter(Batch& batch);
  static ops::Stage* make_movement(Batch& batch);
  static ops::Stage* make_set_change(Batch& batch);
  /// @}

 private:
  /// Operations that run together.
  struct Part {
    std::vector<Operation*> ops;
    std::vector<const Backend*> chosen;  ///< [ops]
    std::uint32_t row = 0;               ///< of the timeline; 0: none yet
  };
  /// A stage whose work is elsewhere: the device's.
  class DeviceStage;
  trace::Phase transfer() const;
  void run_eager(std::span<Operation* const> ops);
  void run_eager(Operation& op);
  ops::DividedTensor divide(Operation& op) const;
  void start();
  void finish();
  const Backend* choose(const Operation& op, bool on_gpu, bool eager);
  void add(Operation& op, const Backend& backend);
  void sort(Operation& op, bool eager);
  void sort_device(std::span<Operation* const> ops);
  void end_barrier(Operation& op);
  void begin_agreement();
  void end_agreement();
  void queue_rows();
  void trace_allreduce();
  bool is(ops::Stage* (*make)(Batch&)) const { return backends()[at_].make == make; }
  template <class S>
  S* own(std::unique_ptr<S> stage) {
    S* made = stage.get();
    owned_ = std::move(stage);
    return made;
  }
  void begin_transfer();
  void take_scattered();
  void take_moved();

  const World& world_;
  const Config& config_;
  const memory::Node& node_;
  transport::Transport& transport_;
  trace::Tracer& tracer_;
  BatchRows rows_;
  gpu::Platform& gpus_;
  std::atomic<bool>& gpu_busy_;
  const std::function<void()>& wake_;
  End end_;
  Special special_;
  ops::EagerSlots slots_;
  const ops::Nodes nodes_;
  ops::Rings rings_;
  ops::Distance distance_;
  Reduction reduction_;
  std::deque<WideCopy> widened_;                       ///< of the reducescatters
  std::unique_ptr<gpu::DeviceInheritance> inherited_;  ///< until there is a device
  std::unique_ptr<gpu::SetDevice> device_;             ///< from the first tensor on a GPU on
  SetFacts facts_;
  std::vector<BackendOverride> overrides_;
  std::vector<Operation*> unagreed_;  ///< tensors on GPUs: the ranks have to agree first
  std::array<Part, num_backends> parts_;
  std::size_t at_ = 0;                        ///< the part under way
  ops::Stage* stage_ = nullptr;               ///< of that part
  std::unique_ptr<ops::Stage> owned_;         ///< where the stage is made anew
  std::unique_ptr<ops::Stage> device_stage_;  ///< of the device
  trace::Phase phase_ = trace::Phase::queue;
  bool running_ = false;
};

}  // namespace hvd::core

/// @file batch.h — the operations that run together.
///
/// Each operation has a backend (backends.h).  Backends with the same `make` share a stage, and their operations form
/// one part of the batch. The parts run one after the other, in the order of the list of backends.  Before the first
/// batch with tensors on GPUs the ranks agree on how such tensors travel.
///
/// The caller holds the engine's drive lock.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/world.h"
#include "core/backends/backends.h"
#include "core/backends/workspace.h"
#include "core/batch/shared_results.h"
#include "core/operation/operation.h"
#include "core/settings/config.h"
#include "transport/transport.h"

namespace hvd::core {

class Batch {
 public:
  /// Gets operations that have ended well, and the backend of each.
  using End = std::function<void(std::span<Operation* const>, std::span<const Backend* const>)>;
  Batch(const World& world, const Config& config, const memory::Node& node, transport::Transport& transport,
        trace::Tracer& tracer, std::uint32_t& traced, gpu::Platform& gpus, std::atomic<bool>& gpu_busy,
        const std::function<void()>& wake, End end);

  /// New settings.  Only between two batches.
  void tune(const TunedSettings& settings) { work_.reduction.tune(settings); }
  void set_special(Workspace::Special make) { work_.special = std::move(make); }

  /// Looks at all sums from now on.  @p check must outlive this object.
  void look_with(ops::FiniteCheck* check) { work_.check = check, work_.reduction.look_with(check); }

  /// Has slices of results on GPUs hashed from now on, by @p turns, which must outlive this object.
  void hash_with(SliceTurns* turns) { work_.turns = turns; }

  SharedResults shared_results() const { return SharedResults(work_); }

  /// Starts @p ops, in the coordinator's order, each with `entry` set.  @p eager: all inputs are in their slots.
  void begin(std::span<Operation* const> ops, bool eager);
  /// Ends operations when their part is done.  True when anything moved.
  bool step();
  bool running() const { return running_; }
  /// True when a thread of the device runs the part, and wakes the engine's thread for the next step().
  bool will_be_woken() const {
    return running_ && unagreed_.empty() && backends()[at_]->place == BackendPlace::gpu && work_.device->wakes();
  }
  /// True while work that was queued on the GPU has not ended.
  bool on_device() const { return work_.device && work_.device->running(); }
  /// Like on_device(), but queries the GPU first, at most every 20 µs.
  bool device_busy() { return work_.device && work_.device->busy(); }
  /// Looks for work that the GPU has ended.  True when some has.  Throws Error when NCCL has failed.
  bool watch_device() { return work_.device && work_.device->watch(); }
  /// See gpu::SetDevice.
  gpu::DeviceWait device_wait() const { return work_.device ? work_.device->wait() : gpu::DeviceWait{}; }
  std::int64_t take_device_waited() { return work_.device ? work_.device->take_waited() : 0; }
  /// Ends the work on the GPU with an error, which the callers get.
  void fail_device(int code, const std::string& text) {
    if (work_.device) work_.device->fail(code, text);
  }
  /// This set's device, from which a new set's device may be split.  nullptr: no tensor on a GPU yet.
  gpu::SetDevice* device() { return work_.device.get(); }
  /// Keeps the world's device, from which this set's device is split when the set needs one.  Call it before the first
  /// batch.
  void inherit(std::unique_ptr<gpu::DeviceInheritance> inherited) { inherited_ = std::move(inherited); }
  /// Call it after a lost peer.  Forgets the batch, without ending its operations.
  void drop();

 private:
  void run_all_eager(std::span<Operation* const> ops);
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

  const Config& config_;
  gpu::Platform& gpus_;
  std::atomic<bool>& gpu_busy_;
  const std::function<void()>& wake_;
  End end_;
  Workspace work_;
  std::unique_ptr<gpu::DeviceInheritance> inherited_;  ///< until there is a device
  SetFacts facts_;
  std::vector<BackendOverride> overrides_;
  std::vector<Operation*> unagreed_;  ///< tensors on GPUs, until the ranks have agreed
  std::vector<BatchPart> parts_;      ///< [backends], by part_of()
  std::size_t at_ = 0;                ///< the part that runs
  ops::Stage* stage_ = nullptr;       ///< of that part
  bool running_ = false;
};

}  // namespace hvd::core

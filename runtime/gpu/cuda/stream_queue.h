/// @file stream_queue.h — the work that a GPU still has for operations that have ended on the host.
///
/// An operation ends for the engine when its work is queued on the engine's stream.  The queue keeps the operation
/// until the GPU reaches the mark that follows this work.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "gpu/cuda/device_times.h"
#include "gpu/cuda/gpu.h"
#include "gpu/device.h"
#include "recorder/trace/tracer.h"

namespace hvd::cuda {

/// The end of work that was queued together on one stream of the runtime.
struct StreamEnd final : gpu::DeviceCompletion {
  void hold(gpu::StreamHandle stream, gpu::StreamId id) const override;
  bool arrived() const override;
  /// Returns true when the GPU has reached the mark.  Queries the driver until then.
  bool reached() const;
  std::shared_ptr<Mark> mark;
  bool measured = false;  ///< hold() records when the first stream arrives
  /// Gpu::arrival() of the first stream that was made to wait; nullptr: none, or not measured.
  std::shared_ptr<Mark> arrival() const;
  std::atomic<int> status{0};  ///< not 0: the work has failed, and `error` is set
  std::string error;

 private:
  mutable std::atomic<bool> reached_{false};
  mutable std::mutex mutex_;
  mutable std::shared_ptr<Mark> arrival_;
  mutable std::array<std::atomic<gpu::StreamId>, 4> held_{};  ///< streams that wait for the mark already
};

/// A mark for which a batch waits.
struct BatchInput {
  std::shared_ptr<gpu::StreamMark> ready;  ///< nullptr: ready at once
  std::string name;                        ///< of the first tensor with this mark
};
/// Consecutive tensors with the same mark make one input.
std::vector<BatchInput> inputs_of(std::span<const gpu::DeviceTensor> tensors);
/// Returns the GPU's progress with a batch.  Queries the driver.  Throws Error when the device has failed.
gpu::DeviceWait wait_of(std::span<const BatchInput> inputs);

/// Measures the time for which the GPU waits for the results of one stream's batches.  The caller holds the engine's
/// drive lock.
///
/// The wait lasts from the arrival of a caller's stream at the wait to the end of the batch.  Batches for which a
/// stream waits together share an arrival: only the time after the batch before counts.
class DeviceWaits {
 public:
  /// Takes the batches that have ended, in the order of the stream.  The context must be current.  Throws Error when
  /// the driver fails.
  void ended(std::shared_ptr<const StreamEnd> end);
  /// The waits in ns that have not been taken.
  std::int64_t take();

 private:
  std::shared_ptr<const StreamEnd> last_;
  std::int64_t waited_ns_ = 0;
};

/// The queued work of one stream, in the order of the stream.  The caller holds the engine's drive lock.
class StreamQueue {
 public:
  /// @p queued: set to true when work is left to the GPU.
  StreamQueue(std::atomic<bool>& queued, trace::Tracer& tracer) : queued_(queued), tracer_(tracer) {}

  /// @p mark: recorded just now, after the work.  timed: the times to report to the timeline, or nullptr.  inputs: of a
  /// batch, see inputs_of().
  std::shared_ptr<StreamEnd> add(std::shared_ptr<Mark> mark, std::unique_ptr<LaunchTimes> timed = nullptr,
                                 std::unique_ptr<DeviceWork> work = nullptr, std::vector<BatchInput> inputs = {});
  bool empty() const { return all_.empty(); }
  std::size_t size() const { return all_.size(); }
  /// Removes the work that has ended.  Returns true if there was any.
  bool reap();
  /// Returns true if some work has not ended.  Calls reap(), but at most once in @p every_ns.
  bool busy(std::int64_t every_ns = 20'000);
  /// The error of the device, which reap() has seen; empty: none.
  const std::string& lost() const { return lost_; }
  /// The number of the oldest work's mark.  Requires !empty().
  std::uint64_t oldest() const { return all_.front().end->mark->number(); }
  /// Returns the GPU's progress with the oldest work.
  gpu::DeviceWait wait() const { return all_.empty() ? gpu::DeviceWait{} : wait_of(all_.front().inputs); }
  /// Measures waits for batches that are added later.
  void measure() { measures_ = true; }
  DeviceWaits& waits() { return waits_; }
  /// Fails all work that has not ended, with this code and text for its callers.
  void fail(int code, const std::string& text);

 private:
  struct One {
    std::shared_ptr<StreamEnd> end;
    std::unique_ptr<LaunchTimes> timed;
    std::unique_ptr<DeviceWork> work;
    std::vector<BatchInput> inputs;
  };
  bool reached(const StreamEnd& end);
  std::atomic<bool>& queued_;
  trace::Tracer& tracer_;
  DeviceTimes times_;
  DeviceWaits waits_;
  bool measures_ = false;
  std::deque<One> all_;
  std::string lost_;
  std::int64_t looked_ns_ = 0;  ///< the time of the last reap() by busy()
};

}  // namespace hvd::cuda

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
#include <string>

#include "gpu/cuda/device_times.h"
#include "gpu/cuda/gpu.h"
#include "recorder/trace/tracer.h"

namespace hvd::cuda {

/// The end of work that was queued together on one stream of the runtime.
struct StreamEnd final : gpu::DeviceCompletion {
  void hold(gpu::StreamHandle stream, gpu::StreamId id) const override;
  bool arrived() const override;
  /// Returns true when the GPU has reached the mark.  Queries the driver until then.
  bool reached() const;
  std::shared_ptr<Mark> mark;
  std::atomic<int> status{0};  ///< not 0: the work has failed, and `error` is set
  std::string error;

 private:
  mutable std::atomic<bool> reached_{false};
  mutable std::array<std::atomic<gpu::StreamId>, 4> held_{};  ///< streams that wait for the mark already
};

/// The queued work of one stream, in the order of the stream.  The caller holds the engine's drive lock.
class StreamQueue {
 public:
  /// @p queued: set to true when work is left to the GPU.
  StreamQueue(std::atomic<bool>& queued, trace::Tracer& tracer) : queued_(queued), tracer_(tracer) {}

  /// @p mark: recorded just now, after the work.  timed: the times to report to the timeline, or nullptr.
  std::shared_ptr<StreamEnd> add(std::shared_ptr<Mark> mark, std::unique_ptr<LaunchTimes> timed = nullptr,
                                 std::unique_ptr<DeviceWork> work = nullptr);
  bool empty() const { return all_.empty(); }
  std::size_t size() const { return all_.size(); }
  /// Removes the work that has ended.  Returns true if there was any.
  bool reap();
  /// Returns true if some work has not ended.  Calls reap(), but at most every 20 µs.
  bool busy();
  /// Fails all work that has not ended.  Its callers get the code and the text.
  void fail(int code, const std::string& text);

 private:
  struct One {
    std::shared_ptr<StreamEnd> end;
    std::unique_ptr<LaunchTimes> timed;
    std::unique_ptr<DeviceWork> work;
  };
  std::atomic<bool>& queued_;
  trace::Tracer& tracer_;
  DeviceTimes times_;
  std::deque<One> all_;
  std::int64_t looked_ns_ = 0;  ///< the time of the last reap() by busy()
};

}  // namespace hvd::cuda

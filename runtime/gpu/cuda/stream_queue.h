/// @file stream_queue.h — what a GPU still does for operations that have ended on the host.
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

/// What was queued on one of our streams together.
struct StreamEnd final : gpu::DeviceCompletion {
  void hold(gpu::StreamHandle stream, gpu::StreamId id) const override;
  bool arrived() const override;
  /// The mark was.  The driver is asked until it has said so.
  bool reached() const;
  std::shared_ptr<Mark> mark;
  std::atomic<int> status{0};  ///< not 0: it never arrives; then error is set
  std::string error;

 private:
  mutable std::atomic<bool> reached_{false};
  mutable std::array<std::atomic<gpu::StreamId>, 4> held_{};  ///< streams that wait for the mark
};

/// Of one stream, in its order.  Under the engine's drive lock.
class StreamQueue {
 public:
  /// @p queued  becomes true when work is left to the GPU
  StreamQueue(std::atomic<bool>& queued, trace::Tracer& tracer) : queued_(queued), tracer_(tracer) {}

  /// @p mark has just been recorded behind the work.  timed: to be told to the timeline.
  std::shared_ptr<StreamEnd> add(std::shared_ptr<Mark> mark, std::unique_ptr<LaunchTimes> timed = nullptr,
                                 std::unique_ptr<DeviceWork> work = nullptr);
  bool empty() const { return all_.empty(); }
  std::size_t size() const { return all_.size(); }
  /// Forgets what has ended.  True when there was any.
  bool reap();
  /// There is something that has not ended.  Looks like reap(), but not more often than every 20 µs.
  bool busy();
  /// What has not ended never will: its callers learn why.
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
  std::int64_t looked_ns_ = 0;  ///< when busy() did
};

}  // namespace hvd::cuda

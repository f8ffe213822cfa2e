/// @file stream_queue.h — what a GPU still does for operations that have ended on the host.
///
/// An operation ends for the engine when its work is queued on our stream; here it
/// is until the mark behind that is reached.
#pragma once
#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>

#include "gpu/cuda/device_times.h"
#include "gpu/cuda/gpu.h"
#include "recorder/tracer.h"

namespace hvd::cuda {

/// What was queued on one of our streams together.
struct StreamEnd final : gpu::DeviceCompletion {
  void hold(gpu::StreamHandle stream) const override;
  bool arrived() const override;
  std::shared_ptr<Mark> mark;
  std::atomic<int> status{0};  ///< not 0: it never arrives; then error is set
  std::string error;
};

/// Of one stream, in its order.  Under the engine's drive lock.
class StreamQueue {
 public:
  /// @p queued  becomes true when work is left to the GPU
  StreamQueue(std::atomic<bool>& queued, trace::Tracer& tracer) : queued_(queued), tracer_(tracer) {}

  /// @p mark has just been recorded behind the work.  timed: to be told to the timeline.
  std::shared_ptr<StreamEnd> add(std::shared_ptr<Mark> mark, std::unique_ptr<LaunchTimes> timed = nullptr);
  bool empty() const { return all_.empty(); }
  /// Forgets what has ended.  True when there was any.
  bool reap();
  /// What has not ended never will: its callers learn why.
  void fail(int code, const std::string& text);

 private:
  struct One {
    std::shared_ptr<StreamEnd> end;
    std::unique_ptr<LaunchTimes> timed;
  };
  std::atomic<bool>& queued_;
  trace::Tracer& tracer_;
  DeviceTimes times_;
  std::deque<One> all_;
};

}  // namespace hvd::cuda

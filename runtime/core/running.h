/// @file running.h — what a GPU still does for operations that have ended on the host.
///
/// An operation ends for the engine when its work is queued on our stream; here it
/// is until the mark behind that is reached.
#pragma once
#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>

#include "core/device_times.h"
#include "core/operation.h"
#include "gpu/cuda/gpu.h"
#include "recorder/tracer.h"

namespace hvd::core {

/// Has the result of an operation on device memory arrived?  Shared by the operations of a batch and their callers.
struct DeviceEnd {
  std::shared_ptr<cuda::Mark> mark;
  std::atomic<int> status{0};  ///< not 0: it never will; then error is set
  std::string error;
};

/// What is put on @p stream from now on comes after the operation, which has ended well; the host waits for nothing.
/// Throws Error when the device's side of it has failed since; and Error{usage} while @p stream is being captured into
/// a CUDA graph, which cannot wait for what is not part of it: the same call may come again later.  Nothing to do for
/// host memory, nor for the whole context: its caller asks arrived().  Any thread.
void hand_over(const Operation& op, cuda::Stream stream);
/// Whether the result of an operation that has ended well is there, or never will be.  Any thread.
bool arrived(const Operation& op);

/// Of one stream, in its order.  Under the engine's drive lock.
class DeviceQueue {
 public:
  /// @p queued  becomes true when work is left to the GPU
  DeviceQueue(std::atomic<bool>& queued, trace::Tracer& tracer) : queued_(queued), tracer_(tracer) {}

  /// @p mark has just been recorded behind the work.  timed: to be told to the timeline.
  std::shared_ptr<DeviceEnd> add(std::shared_ptr<cuda::Mark> mark, std::unique_ptr<LaunchTimes> timed = nullptr);
  bool empty() const { return all_.empty(); }
  /// Forgets what has ended.  True when there was any.
  bool reap();
  /// What has not ended never will: its callers learn why.
  void fail(int code, const std::string& text);

 private:
  struct One {
    std::shared_ptr<DeviceEnd> end;
    std::unique_ptr<LaunchTimes> timed;
  };
  std::atomic<bool>& queued_;
  trace::Tracer& tracer_;
  DeviceTimes times_;
  std::deque<One> all_;
};

}  // namespace hvd::core

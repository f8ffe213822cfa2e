/// @file device_times.h — when a GPU did what, on the host's clock, for the timeline.
///
/// Events tell how long after one another they were reached, not when.  Where our
/// stream was idle, the first one of a launch was reached as soon as it was
/// recorded: that ties the two clocks, anew each time, so nothing adds up and
/// nobody waits for the device.  Behind other work it counts from the last event
/// of that.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/cuda/gpu.h"
#include "recorder/trace/tracer.h"

namespace hvd::cuda {

/// The marks of one launch, and what they lie between.
struct LaunchTimes {
  std::uint32_t row = 0;                 ///< of the timeline
  trace::Phase by = trace::Phase::nccl;  ///< who moves it
  bool packs = false;                    ///< something goes through the fusion buffer
  bool idle = false;                     ///< our stream was, when the first mark was recorded
  std::int64_t recorded_ns = 0;
  /// Before the wait for the tensors, before packing, before NCCL, before unpacking, at the end.
  std::vector<std::shared_ptr<Mark>> marks;
};

/// Of one stream.  Under the engine's drive lock.
class DeviceTimes {
 public:
  /// Tells @p tracer of a launch that has ended, in the order of the stream.  With the GPU's context current.
  /// Throws Error when the driver refuses.
  void tell(trace::Tracer& tracer, const LaunchTimes& timed);

 private:
  std::vector<std::int64_t> times(const LaunchTimes& timed, std::int64_t now_ns);

  std::shared_ptr<Mark> last_;  ///< reached at last_ns_
  std::int64_t last_ns_ = 0;
};

}  // namespace hvd::cuda

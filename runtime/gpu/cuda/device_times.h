/// @file device_times.h — the times of a GPU's work on the host's clock, for the timeline.
///
/// CUDA events tell the time between two events, but not the time of day.  If the runtime's stream was idle, the GPU
/// reached the first event of a launch when the host recorded it.  This event relates the two clocks.  Each launch on
/// an idle stream relates the clocks anew, so errors do not add up.  The host never waits for the device.  If the
/// stream was busy, times count from the last event of the launch before.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/cuda/gpu.h"
#include "recorder/trace/tracer.h"

namespace hvd::cuda {

/// The marks of one launch, and the data that the timeline needs about the launch.
struct LaunchTimes {
  std::uint32_t row = 0;                 ///< row of the timeline
  trace::Phase by = trace::Phase::nccl;  ///< the phase between packing and unpacking
  bool packs = false;                    ///< the launch uses the fusion buffer
  bool idle = false;                     ///< the runtime's stream was idle when the first mark was recorded
  std::int64_t recorded_ns = 0;
  /// Recorded before the wait for the tensors, before packing, before NCCL, before unpacking, and at the end.
  std::vector<std::shared_ptr<Mark>> marks;
};

/// The times of one stream.  The caller holds the engine's drive lock.
class DeviceTimes {
 public:
  /// Reports a launch that has ended to @p tracer.  The caller reports launches in the order of the stream, with the
  /// GPU's context current.  Throws Error when the driver fails.
  void tell(trace::Tracer& tracer, const LaunchTimes& timed);

 private:
  std::vector<std::int64_t> times(const LaunchTimes& timed, std::int64_t now_ns);

  std::shared_ptr<Mark> last_;  ///< the stream's last mark, reached at last_ns_
  std::int64_t last_ns_ = 0;
};

}  // namespace hvd::cuda

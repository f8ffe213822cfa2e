#include "gpu/cuda/device_times.h"

#include <algorithm>

#include "recorder/steps/ticks.h"

namespace hvd::cuda {

std::vector<std::int64_t> DeviceTimes::times(const LaunchTimes& timed, std::int64_t now_ns) {
  const std::vector<std::shared_ptr<Mark>>& marks = timed.marks;
  std::int64_t first = timed.recorded_ns;
  if (!timed.idle && last_) first = std::max(first, last_ns_ + marks.front()->since_ns(*last_));
  std::vector<std::int64_t> at;
  for (const auto& mark : marks) at.push_back(mark == marks.front() ? first : first + mark->since_ns(*marks.front()));
  // The launch has ended.  A time later than now is an error of the clock relation: subtract it.
  const std::int64_t late = std::min(std::max<std::int64_t>(0, at.back() - now_ns), at.front() - timed.recorded_ns);
  for (std::int64_t& ns : at) ns = std::min(ns - late, now_ns);
  last_ = marks.back();
  last_ns_ = at.back();
  return at;
}

void DeviceTimes::tell(trace::Tracer& tracer, const LaunchTimes& timed) {
  using trace::Phase;
  if (!tracer.enabled()) return;
  const std::vector<std::int64_t> at = times(timed, trace::monotonic_ns());
  std::vector<trace::DevicePhase> ran;
  auto phase = [&](Phase which, std::size_t from) { ran.push_back({which, at[from], at[from + 1]}); };
  phase(Phase::wait_for_data, 0);
  if (timed.packs) phase(Phase::memcpy_in_fusion_buffer, 1);
  phase(timed.by, 2);
  if (timed.packs) phase(Phase::memcpy_out_fusion_buffer, 3);
  tracer.ran(timed.row, ran, at.back());
}

}  // namespace hvd::cuda

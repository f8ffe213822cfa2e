/// @file pacer.h — how much processor time a background thread may take without the ranks feeling it.
///
/// Niceness does not do it: with autogroups it counts only within one session, and each rank has its own.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace hvd::launcher {

/// Ticks that all processors together spent idle, and in all, since the machine started.
struct CpuTimes {
  std::uint64_t idle = 0, total = 0;
  int processors = 0;
};
/// From the text of /proc/stat.
std::optional<CpuTimes> parse_cpu_times(std::string_view stat);

/// The share of one core that may be used: all of it when another whole core's worth of time is unused (or nothing is
/// known), a hundredth when the processors are busy.
double allowed_share(const CpuTimes& before, const CpuTimes& now);

}  // namespace hvd::launcher

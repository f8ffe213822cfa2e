/// @file pacer.h — the processor time that a background thread may take without slowing the ranks down.
///
/// nice(2) is not enough.  With the kernel's autogroups, a nice value counts only within one session.  Each rank has
/// its own session.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace hvd::launcher {

/// Ticks since the machine started, of all processors together: idle, and in total.
struct CpuTimes {
  std::uint64_t idle = 0, total = 0;
  int processors = 0;
};
/// Parses the text of /proc/stat.  Nothing: the text is malformed.
std::optional<CpuTimes> parse_cpu_times(std::string_view stat);

/// The share of one core that the thread may use.  1: another whole core is idle, or the load is unknown.  0.01: the
/// processors are busy.
double allowed_share(const CpuTimes& before, const CpuTimes& now);

}  // namespace hvd::launcher

/// @file throttled_time.h — for how long a limit of processor time (a container's --cpus, cpu.max) has held this
/// process.
///
/// The kernel's file of its cgroup: cpu.stat.local, which counts limits of the groups above it too, where the kernel
/// has that (6.6), else cpu.stat.  v1 and v2.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/file.h"

namespace hvd::recorder {

/// Thread: one at a time.
class ThrottledTime {
 public:
  ThrottledTime() : ThrottledTime("/proc/self/cgroup", "/sys/fs/cgroup") {}
  /// For tests: other files of the same kind.
  ThrottledTime(const std::string& groups_file, const std::string& mount);
  /// Of all threads of the group together, since it was made; 0: not known.
  std::int64_t ns() const;

 private:
  Fd file_;
};

/// What such a file says; 0: nothing.
std::int64_t throttled_ns_in(std::string_view cpu_stat);

}  // namespace hvd::recorder

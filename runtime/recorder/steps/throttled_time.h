/// @file throttled_time.h — how long a limit of processor time (a container's --cpus, cpu.max) has stopped this
/// process.
///
/// The source is a file of the process's cgroup, v1 or v2.  The file is cpu.stat.local if the kernel has it (since
/// 6.6), else cpu.stat. cpu.stat.local also counts the limits of parent groups.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/file.h"

namespace hvd::recorder {

/// The constructor opens the file.  One thread at a time.
class ThrottledTime {
 public:
  ThrottledTime() : ThrottledTime("/proc/self/cgroup", "/sys/fs/cgroup") {}
  /// For tests, with files in the format of /proc/self/cgroup and /sys/fs/cgroup.
  ThrottledTime(const std::string& groups_file, const std::string& mount);
  /// The throttled time in ns of all threads of the cgroup together, since the cgroup was made; 0: unknown.
  std::int64_t ns() const;

 private:
  Fd file_;
};

/// Returns the throttled time in ns from the text of such a file; 0: the text has none.
std::int64_t throttled_ns_in(std::string_view cpu_stat);

}  // namespace hvd::recorder

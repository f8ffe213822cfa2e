/// @file oom.h — did the kernel's out-of-memory killer end the rank?
///
/// SIGKILL alone does not prove it.  The memory cgroup counts its kills (v1 memory.oom_control, v2 memory.events), and
/// the kernel's log names the process.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/file.h"

namespace hvd::rank {

struct MemoryGroup {
  std::string directory;    ///< under /sys/fs/cgroup; empty: none found
  std::int64_t kills = -1;  ///< number of processes of the group that the kernel has killed for memory; -1: not counted
  std::int64_t limit_bytes = 0;  ///< 0: no limit
};

/// Returns the current state of the memory cgroup of @p pid.  Not for a zombie, which cgroup v1 has moved to the root
/// group.
MemoryGroup memory_group(pid_t pid);

/// The records that the kernel writes to its log after this object was made.  Older records are not read: process
/// numbers recur, and a virtual machine may inherit the log of another.
class KernelLog {
 public:
  KernelLog();
  /// True if this user may read the log.
  bool readable() const { return static_cast<bool>(file_); }
  /// Continues to read, up to the record that @p pid was killed for memory, or to the end.
  /// @return the record's time, in µs of the log.  Nothing: the log has no such record yet.
  std::optional<std::int64_t> time_of_kill(pid_t pid);
  /// True if every record has been read, and the log counts processes as this process does.  If so, a process without a
  /// record was not killed for memory.
  bool complete() const { return readable() && !lost_records_ && same_numbers_; }

 private:
  Fd file_;
  bool same_numbers_ = false;
  bool lost_records_ = false;  ///< the kernel has overwritten some before they were read
};

/// A kill by the kernel's out-of-memory killer.
struct OomKill {
  std::string text;  ///< one line for the user; empty: no kill is known
  std::int64_t at_us =
      -1;  ///< time in the kernel's log; -1: only the group's counter tells of the kill, so it is not certain
};

/// Decides whether the kernel killed @p pid for memory.  SIGKILL has just killed the process, and it is not reaped
/// yet.  The log decides if it is complete; otherwise the group's counter, which also counts kills of other processes.
/// Takes up to 100 ms if the counter has risen, since the kernel writes its record after the kill.
/// Known gap: misses a kill if the rank has moved itself to another group and the log is not complete.
/// @param before      memory_group() of the guard when the rank was started
/// @param log         made at that time
/// @param peak_bytes  the rank's largest resident size
OomKill oom_verdict(pid_t pid, const MemoryGroup& before, KernelLog& log, std::int64_t peak_bytes);

/// For a rank that ended by itself.  Returns a line with the number of other processes of its memory group that the
/// kernel has killed meanwhile.  Such processes are workers of a data loader, for example.  Empty: none was counted.
std::string killed_workers(const MemoryGroup& before);

}  // namespace hvd::rank

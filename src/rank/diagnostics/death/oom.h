/// @file oom.h — did the kernel's out-of-memory killer end the rank?
///
/// SIGKILL alone does not prove it.  The memory cgroup counts its kills (v1 memory.oom_control, v2 memory.events), and
/// the kernel's log names the process.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>

namespace hvd::rank {

struct MemoryGroup {
  std::string directory;         ///< under /sys/fs/cgroup; empty: none found
  std::int64_t kills = -1;       ///< processes of the group killed for memory so far, -1: not counted
  std::int64_t limit_bytes = 0;  ///< 0: no limit
};

/// The memory cgroup of @p pid as it stands now.  Not for a zombie: under v1 it is in the root group already.
MemoryGroup memory_group(pid_t pid);

/// A kill by the kernel's out-of-memory killer.
struct OomKill {
  std::string text;  ///< one line for the user; empty: no kill is known
  std::int64_t at_us =
      -1;  ///< when, by the kernel's log, which also makes it certain; -1: only the group's counter says it
};

/// Whether @p pid was killed for memory.  SIGKILL has just killed it, and it is not yet reaped.
/// @p before  memory_group() of its guard when the rank was started.  @p peak_bytes  its largest resident size.
/// Known gap: if a rank moved itself to another group, only the kernel's log tells.  The log must be readable, and must
/// count processes as this process does (not so in a process namespace).
OomKill oom_verdict(pid_t pid, const MemoryGroup& before, std::int64_t peak_bytes);

/// For a rank that ended by itself.  Returns a line with the number of other processes of its memory group that the
/// kernel has killed meanwhile.  Such processes are workers of a data loader, for example.  Empty: none was counted.
std::string killed_workers(const MemoryGroup& before);

}  // namespace hvd::rank

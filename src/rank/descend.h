/// @file descend.h — no process that a rank started outlives its job.
///
/// The caller must be a child subreaper: then whatever a descendant does (setsid,
/// double fork, env -i), it is still below the caller in the tree of processes.
#pragma once
#include <sys/types.h>

#include <vector>

namespace hvd::rank {

/// Makes this process a subreaper.
void become_subreaper();

/// All processes below @p root, from one walk over /proc.  Others may have come since.
std::vector<pid_t> descendants(pid_t root);

/// Sends SIGKILL once to everything below this process.
void kill_descendants_once();

/// Kills and reaps until this process has no children, for at most @p limit_ms.  True when none is left.
bool kill_descendants(int limit_ms);

}  // namespace hvd::rank

/// @file process_tree.h — hvdrun's adopted orphans, and hvdrun's parent.
#pragma once
#include <sys/types.h>

#include <vector>

namespace hvd::launcher {

/// Reaps adopted orphans that have ended (base/process/process.h).
/// @param own  hvdrun's own children, which are not reaped: their owners call waitpid()
void reap_orphans(const std::vector<pid_t>& own);

/// Asks the kernel for SIGTERM when the process @p pid ends.  Throws Error{unavailable} when that process is not
/// our parent any more.  Thread: the main one.
void end_with_parent(int pid);

}  // namespace hvd::launcher

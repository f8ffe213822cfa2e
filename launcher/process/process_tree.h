/// @file process_tree.h — no process of a job outlives its hvdrun, and hvdrun does not outlive who started it.
#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

namespace hvd::launcher {

/// Orphans below us become our children instead of init's.
void become_subreaper();

/// Orphans that became our children and have ended.  @p own  children whose end somebody else waits for
void reap_orphans(const std::vector<pid_t>& own);

/// Kills every descendant of this process again and again until there is none, for at most @p limit_ms.  The names of
/// those that had not ended by themselves are added to @p ended.
bool kill_descendants(int limit_ms, std::vector<std::string>* ended = nullptr);

/// Asks the kernel for SIGTERM when the process @p pid ends; throws Error{unavailable} when it is not our parent any
/// more.  Thread: the main one.
void end_with_parent(int pid);

}  // namespace hvd::launcher

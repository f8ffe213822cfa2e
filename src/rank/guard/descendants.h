/// @file descendants.h — no process that a rank started outlives its job.
///
/// The caller must be a child subreaper: then a descendant stays below the caller in the tree of processes, whatever it
/// does (setsid, double fork, env -i).
#pragma once
#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace hvd::rank {

/// Makes this process a subreaper.
void become_subreaper();

/// 0: there is no such process.
pid_t parent_of(pid_t pid);

/// Whether @p pid has children besides @p one.
bool has_other_children(pid_t pid, pid_t one);

/// All processes below @p root, from one walk over /proc.  New ones may have started since.
std::vector<pid_t> descendants(pid_t root);
/// The same without @p spared and what is below those.
std::vector<pid_t> descendants_but(pid_t root, const std::vector<pid_t>& spared);

/// Processes that had to be killed, by number: their names.
using KilledProcesses = std::map<pid_t, std::string>;

/// Sends SIGKILL once to every process below this one.  Those that had not ended by themselves are added to @p killed.
void kill_descendants_once(KilledProcesses* killed = nullptr);

/// Sends SIGKILL once to everything below this process, but for @p spared and what is below those.
void kill_descendants_but(const std::vector<pid_t>& spared);

/// Kills and reaps until this process has no children, for at most @p limit_ms.  True when none is left.
bool kill_descendants(int limit_ms);

/// All processes on this host that have the environment of a rank of @p job, wherever they are in the tree of
/// processes: those that are left when guards were killed.
std::vector<pid_t> strays(const std::string& job);

/// The name of a process as in ps(1), "" once it has ended.
std::string name_of(pid_t pid);

}  // namespace hvd::rank

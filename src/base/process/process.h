/// @file process.h — reads the processes of this host from /proc, and kills all processes below this process.
///
/// Call become_subreaper() before kill_descendants().  All descendants of a child subreaper stay below it in the
/// process tree, even after setsid or a double fork.
#pragma once
#include <sys/socket.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace hvd {

/// One process, from /proc/PID/stat.
struct ProcessEntry {
  std::string name;  ///< as in ps(1): any bytes
  char state = 0;    ///< one letter, as in ps(1): R, S, D, T, Z, …
  pid_t parent = 0;
  long long threads = 0;
  long long start_ticks = 0;  ///< start of the process: clock ticks after this host's boot
  int exit_status = 0;        ///< of a zombie, as waitpid() reports it; 0 for other users' processes
  bool is_zombie() const { return state == 'Z'; }
};

/// Reads /proc/PID/stat.  Nothing: /proc does not show the process.
std::optional<ProcessEntry> process_entry(pid_t pid);

/// All processes of this host (of this PID namespace), from one walk over /proc.  Processes may start or end during the
/// walk.
std::map<pid_t, ProcessEntry> all_processes();

/// The children of all threads of @p pid, zombies included.
std::vector<pid_t> children_of(pid_t pid);

/// All processes below @p root, parents before children.  Leaves out @p spared and the processes below @p spared.
std::vector<pid_t> descendants(pid_t root, const std::vector<pid_t>& spared = {});

/// The name of a process that has not ended; empty otherwise.
std::string process_name(pid_t pid);

/// Makes this process, instead of init, adopt its orphaned descendants.
void become_subreaper();

/// The names of killed processes, by process id.
using KilledProcesses = std::map<pid_t, std::string>;

/// Sends SIGKILL once to every process below this process, except @p spared and the processes below @p spared.
/// @param killed  gets the processes that had not ended before; may be null
void kill_descendants_once(KilledProcesses* killed = nullptr, const std::vector<pid_t>& spared = {});

/// Kills and reaps descendants until this process has no children, or until @p limit has passed.  True when no child is
/// left.  @p killed  as above
bool kill_descendants(std::chrono::milliseconds limit, KilledProcesses* killed = nullptr);

/// The process at the other end of a Unix socket; nothing if the kernel does not know it.
std::optional<ucred> peer_of(int socket);

/// Returns true if the peer of a Unix socket has this process's effective uid.
bool is_of_this_user(int socket);

}  // namespace hvd

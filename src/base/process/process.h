/// @file process.h — the processes of this host as /proc shows them, and the end of all processes below this one.
///
/// A child subreaper's descendants stay below it in the tree of processes, whatever they do (setsid, double fork,
/// env -i).  kill_descendants() therefore needs become_subreaper() first.
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
  long long start_ticks = 0;  ///< since this host's boot
  int exit_status = 0;        ///< of a zombie: as waitpid() gives it; 0 for other users' processes
  bool is_zombie() const { return state == 'Z'; }
};

/// Nothing where /proc does not show the process.
std::optional<ProcessEntry> process_entry(pid_t pid);

/// All processes of this host (of this PID namespace), from one walk.  Others may start or end meanwhile.
std::map<pid_t, ProcessEntry> all_processes();

/// The children of all threads of @p pid, zombies included.
std::vector<pid_t> children_of(pid_t pid);

/// All processes below @p root, parents before their children, without @p spared and the processes below @p spared.
std::vector<pid_t> descendants(pid_t root, const std::vector<pid_t>& spared = {});

/// The name of a process that has not ended; empty otherwise.
std::string process_name(pid_t pid);

/// Makes this process adopt orphans below it, instead of init.
void become_subreaper();

/// Names by process number.
using KilledProcesses = std::map<pid_t, std::string>;

/// Sends SIGKILL once to every process below this one, except @p spared and the processes below @p spared.  Adds the
/// processes that were alive to @p killed.
void kill_descendants_once(KilledProcesses* killed = nullptr, const std::vector<pid_t>& spared = {});

/// Kills and reaps until this process has no children, or until @p limit is over.  True when none is left.
bool kill_descendants(std::chrono::milliseconds limit, KilledProcesses* killed = nullptr);

/// The process at the other end of a Unix socket; nothing where the kernel does not tell.
std::optional<ucred> peer_of(int socket);

/// Whether a process of this user (its effective uid) is at the other end of a Unix socket.
bool is_of_this_user(int socket);

}  // namespace hvd

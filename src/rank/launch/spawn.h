/// @file spawn.h — starts the rank's process: fork, clean-up, binding, exec of the payload.
#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/file.h"
#include "rank/launch/rank_environment.h"

namespace hvd::rank {

/// All is decided before the fork: the child makes system calls only.
struct ProcessSpec {
  std::string program;  ///< a path, or a name to look up in env's PATH
  std::vector<std::string> argv;
  Environment env;
  std::string cwd;
  std::string fallback_cwd;   ///< when cwd is not there
  std::vector<int> cpus;      ///< to bind to; empty: unbound
  int memory_node = -1;       ///< NUMA node whose memory to prefer, once bound; -1: none
  bool input = false;         ///< standard input is a pipe
  std::vector<int> keep_fds;  ///< stay open under the same numbers
};

struct SpawnedProcess {
  pid_t pid = -1;
  Fd out, err;  ///< read ends, non-blocking
  Fd in;        ///< write end, non-blocking; none unless asked for
  bool used_fallback_cwd = false;
  bool prefers_node = false;     ///< memory of ProcessSpec::memory_node is preferred
  bool bound_otherwise = false;  ///< the kernel gave other CPUs than those asked for
};

/// Starts the rank in a session of its own; it is killed when this process dies.  Returns after its exec.
/// Throws Error{unavailable} that names the program and the reason when it cannot run.
SpawnedProcess spawn(const ProcessSpec& launch);

}  // namespace hvd::rank

/// @file host_shell.h — runs in a Spark task of each host: the shell that starts the host's daemon, and the clean-up
/// after it.
#pragma once
#include <string>
#include <vector>

namespace hvd::launcher {

/// `hvdrun --host-shell PID`: runs /bin/sh on the script from stdin, to its end.  (The script holds the job's secret,
/// so it is in no argument vector.)  When our parent, the process PID, ends first, the job has a few seconds to end by
/// itself.  Then every process below this one is killed: nothing outlives it.
/// Returns the shell's exit code, 128 + signal where it was killed.  stdout: the output of the shell and the daemon.
int host_shell(const std::vector<std::string>& args);

}  // namespace hvd::launcher

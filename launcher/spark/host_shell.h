/// @file host_shell.h — what a Spark task of a host runs: the shell that starts the host's daemon, and the end of it
/// all.
#pragma once
#include <string>
#include <vector>

namespace hvd::launcher {

/// `hvdrun --host-shell PID`: /bin/sh with the script that stands on stdin (it holds the job's secret, so it is in no
/// argument vector), until it ends.  When the process PID, our parent, ends first, the job has a few seconds to end by
/// itself.  Whatever is below us then is killed: nothing outlives this process.
/// Returns the shell's exit code, 128 + signal where it was killed.  stdout: what the shell and the daemon say.
int host_shell(const std::vector<std::string>& args);

}  // namespace hvd::launcher

/// @file host_shell.h — helpers for Python programs that run hvdrun and its daemons inside a cluster's processes (Spark
/// tasks).
#pragma once
#include <string>
#include <vector>

namespace hvd::launcher {

/// `hvdrun --host-shell PID`: runs /bin/sh on the script from stdin, to its end.  The script holds the job's secret, so
/// it is in no argument vector.  When this process's parent, PID, ends first, the job gets a few seconds to end by
/// itself.  Then every process below this one is killed.
/// Returns the shell's exit code, or 128 + signal if a signal killed it.  stdout: the output of the shell and the
/// daemon.
int host_shell(const std::vector<std::string>& args);

/// `hvdrun --agents-folder PID`: makes a folder that the process PID owns (base/files/own_folder.h), and prints its
/// path. Removes such folders of processes that are gone.
int agents_folder(const std::vector<std::string>& args);

}  // namespace hvd::launcher

/// @file pass_script.h — the launch agent of a job whose hosts have joined by themselves.
#pragma once
#include <string>
#include <vector>

namespace hvd::launcher {

/// `hvdrun --pass-script SOCKET HOST /bin/sh`: has the script from stdin run on the host, through the join server.
/// stdout: the output there.  Returns the exit code there.
int pass_script(const std::vector<std::string>& args);

}  // namespace hvd::launcher

/// @file pass_script.h — the launch agent of a job whose hosts have joined by themselves.
#pragma once
#include <string>
#include <vector>

namespace hvd::launcher {

/// `hvdrun --pass-script SOCKET HOST /bin/sh`: runs the script from stdin on the host, through the join server.
/// Writes the script's output to stdout, and returns its exit code.
int pass_script(const std::vector<std::string>& args);

}  // namespace hvd::launcher

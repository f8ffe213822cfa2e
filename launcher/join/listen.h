/// @file listen.h — hvdrun --listen: waits for hosts that join, then runs the job on them.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "launcher/options/settings.h"

namespace hvd::launcher {

/// Waits until enough hosts have joined, and runs a second hvdrun with their manifest.  Returns its exit code.
/// In the second hvdrun, sets the manifest in @p settings and returns nothing.
/// Throws Error{timeout} when too few hosts come within --elastic-timeout.
std::optional<int> listen_for_hosts(const std::vector<std::string>& args, Settings& settings);

}  // namespace hvd::launcher

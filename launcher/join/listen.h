/// @file listen.h — hvdrun --listen: waits for hosts that join, then runs the job on them.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "launcher/options/settings.h"

namespace hvd::launcher {

/// Waits until enough hosts have joined, and runs hvdrun again with their manifest.  Nothing: this process is that
/// second hvdrun, and @p settings now has the manifest.  Else hvdrun's exit code.
/// Throws Error{timeout} when too few hosts come within --elastic-timeout.
std::optional<int> listen_for_hosts(const std::vector<std::string>& args, Settings& settings);

}  // namespace hvd::launcher

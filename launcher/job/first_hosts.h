/// @file first_hosts.h — the hosts that a discovery script names before an elastic job starts.
#pragma once
#include "launcher/elastic/host_discovery.h"
#include "launcher/hosts/allocation.h"
#include "launcher/options/settings.h"

namespace hvd::launcher {

/// The least number of slots with which a job with a discovery script starts: --min-np, else -np, else 1.
int slots_to_begin(const Settings& settings);

/// The source of hosts while the job runs.  Nothing: the command line names the hosts.
DiscoverySource discovery_source(const Settings& settings, const Environment& environment);

/// Runs the user's discovery script until it names slots_to_begin().  A line tells the user of the wait.
/// Throws Error when the script's first call fails, and Error{timeout} after --elastic-timeout (or --time-limit).
/// @param waits  false: the script runs once
Allocation first_hosts(const Settings& settings, const Environment& environment, bool waits);

}  // namespace hvd::launcher

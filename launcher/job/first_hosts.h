/// @file first_hosts.h — the hosts that a discovery script names before its elastic job starts.
#pragma once
#include "launcher/elastic/host_discovery.h"
#include "launcher/hosts/allocation.h"
#include "launcher/options/settings.h"

namespace hvd::launcher {

/// Slots without which a job with a discovery script does not start: --min-np, else -np, else 1.
int slots_to_begin(const Settings& settings);

/// Where hosts come from while the job runs; nothing where they were given on the command line.
DiscoverySource discovery_source(const Settings& settings, const Environment& environment);

/// Runs the user's discovery script, again and again until it names slots_to_begin(): one line says so.
/// Throws Error when the script's first call fails, and Error{timeout} after --elastic-timeout (or --time-limit).
/// @param waits  false: it runs once
Allocation first_hosts(const Settings& settings, const Environment& environment, bool waits);

}  // namespace hvd::launcher

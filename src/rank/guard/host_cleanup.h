/// @file host_cleanup.h — removes what is left of a job on this host, once all its ranks here have ended.
#pragma once
#include <string>

#include "wire/messages/cleanup_result.h"

namespace hvd::rank {

/// Kills the processes of @p job that its guards have left and removes its files from /dev/shm
/// (base/files/leftovers.h). Returns what was killed and removed.  Takes milliseconds where there is nothing to do, at
/// most 1 s.
wire::CleanupResult sweep_host(const std::string& job, double since_seconds);

}  // namespace hvd::rank

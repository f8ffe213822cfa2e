/// @file host_cleanup.h — removes a job's leftovers from this host, once all ranks of the host have ended.
#pragma once
#include <string>

#include "wire/messages/cleanup_result.h"

namespace hvd::rank {

/// Kills the processes of @p job that its guards have left and removes its files from /dev/shm
/// (base/files/leftovers.h).  Returns their names.  Takes milliseconds where nothing is left, at most 1 s.
wire::CleanupResult sweep_host(const std::string& job, double since_seconds);

}  // namespace hvd::rank

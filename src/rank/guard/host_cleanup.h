/// @file host_cleanup.h — what is left of a job on this host once all its ranks here have ended.
#pragma once
#include <string>

#include "wire/small.h"

namespace hvd::rank {

/// Kills the strays of @p job (descend.h), removes its files from /dev/shm (base/leftovers.h), and says what that was.
/// Takes milliseconds where there is nothing, at most 1 s.
wire::Swept sweep_host(const std::string& job, double since_seconds);

}  // namespace hvd::rank

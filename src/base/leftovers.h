/// @file leftovers.h — files in shared memory that killed processes left behind.
#pragma once
#include <string>
#include <vector>

namespace hvd {

/// Removes from @p folder what was made after @p since_seconds (of the wall clock): libhvd's files whose maker, which
/// their names tell, is gone; and Open MPI's of this user on this host that no process has open or mapped.
/// Returns the names of what was removed.
std::vector<std::string> remove_shared_memory_leftovers(double since_seconds, const std::string& folder = "/dev/shm");

/// Seconds of the wall clock.
double wall_seconds();

}  // namespace hvd

/// @file leftovers.h — files in shared memory that killed processes left behind.
#pragma once
#include <string>
#include <vector>

namespace hvd {

/// Removes from @p folder what Open MPI and libhvd name there for this user on this host, when it was made after
/// @p since_seconds (of the wall clock) and no process has it mapped: looked at twice, since a rank that is just
/// starting makes its file before it maps it.  Nothing but one listing when no such file is there.
/// Returns the names of what was removed.
std::vector<std::string> remove_shared_memory_leftovers(double since_seconds, const std::string& folder = "/dev/shm");

/// Seconds of the wall clock.
double wall_seconds();

}  // namespace hvd

/// @file leftovers.h — removes the files that killed processes left in shared memory.
#pragma once
#include <string>
#include <vector>

namespace hvd {

/// Removes two kinds of files from @p folder, if made after @p since_seconds of the wall clock: libhvd's, when the
/// process that the name tells is gone; and Open MPI's of this user on this host, when no process has them open or
/// mapped.  Returns the names of the removed files.
std::vector<std::string> remove_shared_memory_leftovers(double since_seconds, const std::string& folder = "/dev/shm");
/// Only libhvd's, however old they are: their names prove that their makers are gone.
std::vector<std::string> remove_files_of_gone_ranks(const std::string& folder = "/dev/shm");

/// Seconds of the wall clock.
double wall_seconds();

}  // namespace hvd

/// @file leftovers.h — removes the files that killed processes left in shared memory.
#pragma once
#include <string>
#include <vector>

namespace hvd {

/// Removes two kinds of this user's files from @p folder, if they were made after @p since_seconds of the wall clock:
/// - files of libhvd, if the process that the file's name contains is gone,
/// - files of Open MPI on this host, if no process has the file open or mapped.
/// Returns the names of the removed files.
std::vector<std::string> remove_shared_memory_leftovers(double since_seconds, const std::string& folder = "/dev/shm");
/// Removes only libhvd's files, of any age: the name of each file proves that the file's maker is gone.
std::vector<std::string> remove_files_of_gone_ranks(const std::string& folder = "/dev/shm");

/// Seconds of the wall clock.
double wall_seconds();

}  // namespace hvd

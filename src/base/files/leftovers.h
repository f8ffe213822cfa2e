/// @file leftovers.h — removes the files that killed processes left in shared memory.
#pragma once
#include <string>
#include <vector>

namespace hvd {

/// Removes two kinds of this user's files from @p folder:
/// - A file of libhvd is removed if the process in its name is gone.
/// - A file of Open MPI on this host is removed if no process has it open or mapped.
/// @param since_seconds  a time of the wall clock; older files stay
/// @return the names of the removed files
std::vector<std::string> remove_shared_memory_leftovers(double since_seconds, const std::string& folder = "/dev/shm");
/// Removes only libhvd's files, of any age.  A file is removed if the process in its name is gone.
std::vector<std::string> remove_files_of_gone_ranks(const std::string& folder = "/dev/shm");

/// Seconds of the wall clock.
double wall_seconds();

}  // namespace hvd

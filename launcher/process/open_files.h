/// @file open_files.h — the limit on this process's open files.
#pragma once
#include <cstddef>

namespace hvd::launcher {

/// Raises this process's limit of open files, usually 1024.  With many ranks it is too low: each guard's connection and
/// each rank's output file needs a descriptor.  Throws Error{unavailable} if the hard limit is too low.
/// @param all_here  all ranks are on this host, under our own daemon, which needs descriptors too
void allow_files(std::size_t ranks, bool all_here);

}  // namespace hvd::launcher

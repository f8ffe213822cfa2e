/// @file machine_report.h — hvdrank --machine: describes this host for hvdrun.
#pragma once
#include "rank/launch/rank_environment.h"

namespace hvd::rank {

/// Writes the machine to standard output, in the form of placement/machine_text.h, with the driver and the ways between
/// its GPUs.
/// @return the process's exit code.  The process must end by _exit(): a thread of NVIDIA's library may hang.
int print_machine(const Environment& mine);

}  // namespace hvd::rank

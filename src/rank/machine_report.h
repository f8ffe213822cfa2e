/// @file machine_report.h — hvdrank --machine: what this host tells of itself to a hvdrun that asks.
#pragma once
#include "rank/launch/rank_environment.h"

namespace hvd::rank {

/// The machine on standard output, as placement/machine_text.h writes it: with how its GPUs reach each other, and the
/// driver.
/// @return the process's exit code.  It must end by _exit(): a thread of NVIDIA's library may hang.
int print_machine(const Environment& mine);

}  // namespace hvd::rank

/// @file supervise.h — runs a prepared job from mpirun's start to the last clean-up.
#pragma once
#include "launcher/job.h"

namespace hvd::launcher {

/// Returns hvdrun's exit code.  Everything that it started is gone when it returns.
/// Thread: the main one (a child's PDEATHSIG follows the thread that forked it).
int supervise(JobPlan& job);

/// Asks for SIGTERM when the process @p pid ends; throws Error{unavailable} when it is not our parent any more.
void end_with_parent(int pid);

}  // namespace hvd::launcher

/// @file supervise.h — runs a prepared job from the start of its ranks to the last clean-up.
#pragma once
#include "launcher/job/job.h"

namespace hvd::launcher {

/// Returns hvdrun's exit code.  Everything that it started is gone when it returns.
/// Thread: the main one (a child's PDEATHSIG follows the thread that forked it).
int supervise(Job& job);

}  // namespace hvd::launcher

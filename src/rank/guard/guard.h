/// @file guard.h — the process that watches over one rank.
///
/// One thread, one poll loop, no Python, no MPI (ZeroMQ keeps its own I/O thread).  The guard talks to hvdrun and
/// starts the rank.  The guard carries the rank's output, link and signals.  The guard reports how the rank ended, and
/// ends all processes below the rank.
///
/// guard_life.h has the states of a guard and their time limits.  Every state ends even if no other process answers.
#pragma once
#include "rank/launch/rank_environment.h"

namespace hvd::rank {

/// Runs to the end; returns the exit code of hvdrank.  SIGCHLD and the others of awaited_signals() are blocked.
int run_guard(const LaunchContext& call);

}  // namespace hvd::rank

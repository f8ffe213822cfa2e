/// @file guard.h — the process that watches over one rank.
///
/// One thread, one poll loop, no Python, no MPI (ZeroMQ keeps its own I/O thread).
/// It talks to hvdrun, starts the rank, carries its output, link and signals, says
/// how it ended, and leaves nothing of it alive.  Its life:
///
///   connecting → waiting (manifest, payload) → running → ending → reported → exit
///
/// Every state has an end even if nobody answers: see the limits in guard.cc.
#pragma once
#include "rank/launch/rank_environment.h"

namespace hvd::rank {

/// Runs to the end; returns the exit code of hvdrank.  SIGCHLD and the others of awaited_signals() are blocked.
int run_guard(const LaunchContext& call);

}  // namespace hvd::rank

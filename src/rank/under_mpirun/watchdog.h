/// @file watchdog.h — the process that mpirun starts: it only waits.
///
/// The watchdog forks the guard; then it only passes on signals and reaps.  The watchdog exists for the case that
/// SIGKILL kills the guard.  Then the watchdog, as a subreaper, inherits all processes below the guard, kills them, and
/// ends.  The watchdog has no channel and no threads.  Its memory is so small that the out-of-memory killer spares it.
#pragma once
#include <functional>

namespace hvd::rank {

/// Forks.  The child runs @p guard and exits with its result.  Returns this process's exit code, when the guard has
/// ended and no process is left below.
int watch_guard(const std::function<int()>& guard);

}  // namespace hvd::rank

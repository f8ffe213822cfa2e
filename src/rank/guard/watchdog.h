/// @file watchdog.h — the process that mpirun starts: it only waits.
///
/// The watchdog forks the guard and does nothing but pass on signals and reap.  It
/// exists so that a SIGKILLed guard leaves nothing: as a subreaper it inherits
/// whatever the guard had below it, kills that, and ends.  It holds no channel, no
/// threads and no memory worth killing it for.
#pragma once
#include <functional>

namespace hvd::rank {

/// Forks; the child runs @p guard and exits with what it returns.  Returns this
/// process's exit code when the guard has ended and nothing is left below.
int watch_guard(const std::function<int()>& guard);

}  // namespace hvd::rank

/// @file thread_cores.h — the core on which the engine's thread runs.
#pragma once
#include <sched.h>

#include <optional>

#include "common/world.h"
#include "core/settings/config.h"

namespace hvd::core {

/// The core of this rank in HOROVOD_THREAD_AFFINITY, which lists one for each rank of the host.  Empty: the variable is
/// not set.  Throws Error{usage} if the variable has no core for this rank, or a core that does not exist.
std::optional<cpu_set_t> thread_cores(const Config& config, const World& world);

}  // namespace hvd::core

/// @file thread_cores.h — on which core the engine's thread runs.
#pragma once
#include <sched.h>

#include <optional>

#include "common/world.h"
#include "core/settings/config.h"

namespace hvd::core {

/// By HOROVOD_THREAD_AFFINITY, a core for each rank of the host; none: it is not set.  Throws Error{usage} where it has
/// no core for this rank, or one that is not there.
std::optional<cpu_set_t> thread_cores(const Config& config, const World& world);

}  // namespace hvd::core

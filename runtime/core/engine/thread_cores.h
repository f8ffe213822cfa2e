/// @file thread_cores.h — the core on which the engine's thread runs.
#pragma once
#include <sched.h>

#include <optional>

#include "common/world.h"
#include "core/settings/config.h"

namespace hvd::core {

/// The core of this rank in HOROVOD_THREAD_AFFINITY, which lists one for each rank of the host.  Empty: the variable is
/// not set, or lists too few, which the host's first rank reports.  Throws Error{usage} if it is no list of cores, or
/// if this rank's core does not exist.
std::optional<cpu_set_t> thread_cores(const Config& config, const World& world);

}  // namespace hvd::core

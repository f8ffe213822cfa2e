/// @file eager_backend.h — runs an operation whose inputs of all ranks are in the eager slots.
#pragma once
#include "core/backends/workspace.h"

namespace hvd::core {

/// Writes the result of @p op.  All inputs are in the slots, or between nodes the result is in the leader's slot, so
/// no rank waits for another one.
void run_eager(Workspace& work, Operation& op);

}  // namespace hvd::core

/// @file eager_backend.h — runs an operation whose inputs of all ranks are in the eager slots.
#pragma once
#include "core/backends/workspace.h"

namespace hvd::core {

/// Writes the result of @p op.  No rank waits for another: all inputs are in the slots.  Between nodes, the leader's
/// slot already has the result.
void run_eager(Workspace& work, Operation& op);

}  // namespace hvd::core

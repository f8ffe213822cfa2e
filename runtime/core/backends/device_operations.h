/// @file device_operations.h — a batch's operations on device memory, as the seam's tensors (gpu/device.h), and back.
///
/// Drive side.
#pragma once
#include <span>
#include <vector>

#include "common/world.h"
#include "core/operation/operation.h"
#include "gpu/device.h"

namespace hvd::core {

/// Those that travel among the GPUs.  [ops]
std::vector<gpu::DeviceTensor> device_tensors(std::span<Operation* const> ops);
/// Hands what became of them to the same operations.
void take_results(std::span<Operation* const> ops, gpu::SetDevice::Result results, const World& world);

/// From now on the operation lies in pinned memory, the copy of its input on its way.  Nothing for a stand-in, which is
/// in host memory already.
void stage(Operation& op, gpu::SetDevice& device);
/// A staged operation's result is there, in pinned or ordinary memory: queues the way back.
void give_back(Operation& op, gpu::SetDevice& device);

}  // namespace hvd::core

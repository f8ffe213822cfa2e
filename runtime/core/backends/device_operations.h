/// @file device_operations.h — converts a batch's operations on device memory to gpu::DeviceTensor (gpu/device.h), and
/// writes results back.
///
/// The caller holds the drive lock.
#pragma once
#include <span>
#include <vector>

#include "common/world.h"
#include "core/operation/checked_request.h"
#include "core/operation/operation.h"
#include "gpu/device.h"

namespace hvd::core {

/// A tensor that is in GPU memory, with `ready` unset.  @p members: of the process set.
gpu::DeviceTensor device_tensor(const CheckedRequest& request, int members);
/// [ops] The tensors that the GPUs exchange.
std::vector<gpu::DeviceTensor> device_tensors(std::span<Operation* const> ops);
/// Writes the results into the same operations.
void take_results(std::span<Operation* const> ops, gpu::SetDevice::Result results, const World& world);

/// Starts to copy the input to pinned memory, and makes the operation use that memory.  No effect on a stand-in, which
/// is in host memory.
void stage(Operation& op, gpu::SetDevice& device);
/// Queues the copy of a staged operation's result, from pinned or ordinary memory to the GPU.
void give_back(Operation& op, gpu::SetDevice& device);

}  // namespace hvd::core

/// @file through_host.h — the tensors on GPUs that the user sends through host memory.
#pragma once
#include <cstdint>

#include "options/configuration.h"

namespace hvd::nccl {

/// Returns a bit (bit_of) for each Kind whose tensors on GPUs go through host memory.  HOROVOD_GPU_OPERATIONS,
/// HOROVOD_GPU_ALLREDUCE or a similar variable names MPI for these kinds.  The runtime's MPI takes no device memory.
/// If only HOROVOD_CPU_OPERATIONS is set, and no variable for GPUs, all kinds go through host memory.
std::uint32_t kinds_through_host(const options::Configuration& config);

}  // namespace hvd::nccl

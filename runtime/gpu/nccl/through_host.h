/// @file through_host.h — which tensors on GPUs the user wants to go through host memory.
#pragma once
#include <cstdint>

#include "options/configuration.h"

namespace hvd::nccl {

/// A bit for each Kind whose tensors on GPUs go through host memory: those for which HOROVOD_GPU_OPERATIONS,
/// HOROVOD_GPU_ALLREDUCE and their like name MPI, which takes no device memory here; all of them where
/// HOROVOD_CPU_OPERATIONS is set and nothing is said for GPUs.
std::uint32_t kinds_through_host(const options::Configuration& config);

}  // namespace hvd::nccl

/// @file config.h — what the environment says, read once at every init.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace hvd::core {

struct Config {
  std::uint32_t cache_capacity = 1024;       ///< HOROVOD_CACHE_CAPACITY: names that keep an id
  std::int64_t fusion_bytes = 128ll << 20;   ///< HOROVOD_FUSION_THRESHOLD; 0: nothing is fused
  std::int64_t hold_ns = 1000000;            ///< HOROVOD_CYCLE_TIME (ms): longest hold for fusion
  std::int64_t stall_warn_ns = 60000000000;  ///< HOROVOD_STALL_CHECK_TIME_SECONDS; 0: HOROVOD_STALL_CHECK_DISABLE
  std::int64_t stall_shutdown_ns = 0;        ///< HOROVOD_STALL_SHUTDOWN_TIME_SECONDS; 0: never
  std::int64_t stall_tell_ns =
      5000000000;  ///< when hvdrun is told at the soonest; later where steps take long, but no later than stall_warn_ns
  int link = -1;   ///< HVD_LINK_FD: hvdrun's guard; -1: there is none
  int tally = -1;  ///< HVD_STATUS_FD: the guard's page for what this rank counts; -1: there is none
  double start_limit_seconds = 600;  ///< how long init waits for the other ranks
  int ranks_per_node = 0;            ///< HVD_RANKS_PER_NODE (testing): splits a host; 0: whole hosts
  std::string backends;              ///< HVD_BACKENDS: overrides of the choice of backends (backends.h)
  int arity = 0;                     ///< HVD_TREE_ARITY (testing): children of a node leader; 0: the default
  /// A bit for each Kind whose tensors on GPUs go through host memory: HOROVOD_GPU_OPERATIONS=MPI,
  /// HOROVOD_GPU_ALLREDUCE=MPI, …; all of them with HOROVOD_CPU_OPERATIONS, where nothing is said for GPUs.
  std::uint32_t gpu_through_host = 0;
  bool torch_memory = true;       ///< HVD_TORCH_MEMORY: device memory from torch's allocator, for its tensors
  bool nccl_wide = false;         ///< HVD_NCCL_WIDE: sums of f16 and bf16 on GPUs are made in f32
  bool nccl_float8 = false;       ///< HVD_NCCL_FLOAT8: those of 8-bit floats by NCCL, in 8 bits
  int nccl_streams = 1;           ///< HOROVOD_NUM_NCCL_STREAMS: batches that a GPU can have under way side by side
  bool sums_by_nodes = false;     ///< HOROVOD_HIERARCHICAL_ALLREDUCE, HOROVOD_TORUS_ALLREDUCE: on GPUs
  bool gathers_by_nodes = false;  ///< HOROVOD_HIERARCHICAL_ALLGATHER: on GPUs
  std::vector<int> affinity;      ///< HOROVOD_THREAD_AFFINITY: cores of the engines' threads, by local rank
  bool mpi_threads = true;        ///< HOROVOD_MPI_THREADS_DISABLE off

  /// Throws Error{usage} naming the variable.
  static Config from_environment();
};

}  // namespace hvd::core

/// @file binding.h — the cores and the GPU of a rank, where hvdrun has not planned them.
///
/// Reads the affinity mask, sysfs and the driver's files.  hwloc's discovery would take longer than all other steps of
/// the guard before the rank runs.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "placement/machine.h"
#include "rank/launch/rank_environment.h"
#include "wire/manifest/manifest.h"

namespace hvd::rank {

struct Binding {
  std::vector<int> cpus;                    ///< empty: leave the mask as it is
  int threads = 1;                          ///< OMP_NUM_THREADS
  std::string gpu;                          ///< planned: UUID, else PCI address; empty: none
  std::optional<std::string> visible_gpus;  ///< CUDA_VISIBLE_DEVICES; nothing: unchanged
  int memory_node = -1;                     ///< NUMA node whose memory the rank prefers; -1: none
  std::string gpu_pci{};                    ///< of the same GPU, for the driver's messages; empty: unknown
};

/// This host, with the GPUs that CUDA_VISIBLE_DEVICES leaves visible.
placement::Machine visible_machine(const Environment& mine);

/// hvdrun's plan if there is one, else a plan of this host's own, by the same function.
/// @param mine  the guard's environment, for CUDA_VISIBLE_DEVICES
/// Throws Error{usage} when there are more ranks than GPUs here.
Binding plan_binding(const wire::RankManifest& m, const Environment& mine);

}  // namespace hvd::rank

/// @file binding.h — what this rank is bound to, and its GPU, when hvdrun did not say.
///
/// Read from the affinity mask, sysfs and the driver's files rather than through hwloc, whose discovery
/// costs more than everything else that the guard does before the rank runs.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "placement/machine.h"
#include "rank/launch/rank_environment.h"
#include "wire/manifest.h"

namespace hvd::rank {

struct Binding {
  std::vector<int> cpus;                    ///< empty: leave the mask as it is
  int threads = 1;                          ///< OMP_NUM_THREADS
  std::string gpu;                          ///< planned: UUID, else PCI address; empty: none
  std::optional<std::string> visible_gpus;  ///< CUDA_VISIBLE_DEVICES; nothing: as it is
  std::string gpu_pci{};                    ///< of the same GPU, for the driver's messages; empty: not known
};

/// This host, its GPUs as CUDA_VISIBLE_DEVICES leaves them.
placement::Machine visible_machine(const Environment& mine);

/// hvdrun's plan, else this host's own by the same function.
/// @param mine  the guard's environment, for CUDA_VISIBLE_DEVICES
/// Throws Error{usage} when there are more ranks than GPUs here.
Binding plan_binding(const wire::RankManifest& m, const Environment& mine);

}  // namespace hvd::rank

/// @file rank_resources.h — the cores, GPU and network interface of each rank of one host.  Pure.
///
/// With GPUs, local rank i gets GPU i, and the ranks whose GPUs hang on one NUMA node share that node's cores equally.
/// Without, all ranks share the host's cores equally.  Whole cores only, neighbours first.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "placement/machine.h"

namespace hvd::placement {

enum class GpuMode {
  all,   ///< every rank sees all GPUs; its cores are near its own GPU
  own,   ///< every rank sees only its own GPU
  none,  ///< ranks see none, and placement ignores them
};

/// "all", "own" or "none"; nothing for anything else.
std::optional<GpuMode> gpu_mode(const std::string& text);
const char* name_of(GpuMode mode);

struct RankResources {
  std::vector<int> cpus;       ///< sorted; empty: not bound, since there are more ranks than cores
  int threads = 1;             ///< cores in the share, at least 1: hyper-threads seldom help numerical code
  std::optional<GpuInfo> gpu;  ///< planned for this rank
  int node = -1;               ///< NUMA node of the cores; -1: several or unknown
  std::string nic;             ///< the nearest network interface; empty: none
};

/// Shares of all @p local_size ranks of a host.
/// @param share_gpus  more ranks than GPUs are fine: they take turns
/// Throws Error{usage} that names both numbers when there are too few GPUs.
std::vector<RankResources> divide_machine(const Machine& machine, int local_size, GpuMode mode, bool share_gpus);

/// The rank's value of CUDA_VISIBLE_DEVICES; nothing: unchanged.
std::optional<std::string> visible_devices(const RankResources& share, GpuMode mode);

/// Part @p index of @p count equal parts of @p cores; sizes differ by at most one core.
std::vector<Core> part_of(const std::vector<Core>& cores, int index, int count);

}  // namespace hvd::placement

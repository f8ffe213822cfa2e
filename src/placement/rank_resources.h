/// @file rank_resources.h — assigns cores, a GPU and a network interface to each rank of one host.  Pure.
///
/// On a host with GPUs, local rank i gets GPU i.  Ranks with GPUs on the same NUMA node share that node's cores
/// equally.  Without GPUs, all ranks share the host's cores equally.  A rank gets whole cores that are neighbours.  On
/// a host with several NUMA nodes, a rank whose cores are on one node prefers that node's memory.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "placement/machine.h"

namespace hvd::placement {

enum class GpuMode {
  all,   ///< every rank sees all GPUs; its cores are near its own GPU
  own,   ///< every rank sees only its own GPU
  none,  ///< ranks see no GPU, and placement ignores GPUs
};

/// Parses "all", "own" or "none"; nothing for any other text.
std::optional<GpuMode> gpu_mode(const std::string& text);
const char* name_of(GpuMode mode);

struct RankResources {
  std::vector<int> cpus;       ///< logical CPUs, sorted; empty: not bound, because there are more ranks than cores
  int threads = 1;             ///< number of cores, at least 1; hyper-threads seldom help numerical code
  std::optional<GpuInfo> gpu;  ///< the rank's own GPU
  int node = -1;               ///< NUMA node of the cores; -1: several nodes, or not known
  int memory_node = -1;        ///< NUMA node whose memory the rank prefers; -1: the kernel chooses
  std::string nic;             ///< the nearest network interface; empty: none
};

/// The resources of a host's @p local_size ranks, by local rank.
/// @param share_gpus  allows more ranks than GPUs: rank i gets GPU i modulo the number of GPUs
/// Throws Error{usage} with both numbers if there are too few GPUs.
std::vector<RankResources> divide_machine(const Machine& machine, int local_size, GpuMode mode, bool share_gpus);

/// The rank's value of CUDA_VISIBLE_DEVICES; nothing: the variable is not changed.
std::optional<std::string> visible_devices(const RankResources& share, GpuMode mode);

/// Part @p index of @p count parts of @p cores.  The sizes of the parts differ by at most one core.
std::vector<Core> part_of(const std::vector<Core>& cores, int index, int count);

}  // namespace hvd::placement

#include "placement/rank_resources.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"

namespace hvd::placement {

namespace {

void take_cores(RankResources& share, const std::vector<Core>& cores) {
  share.threads = std::max<int>(1, static_cast<int>(cores.size()));
  share.node = cores.empty() ? -1 : cores[0].node;
  for (const Core& c : cores) {
    share.cpus.insert(share.cpus.end(), c.cpus.begin(), c.cpus.end());
    if (c.node != share.node) share.node = -1;
  }
  std::sort(share.cpus.begin(), share.cpus.end());
}

/// Divides @p cores between the ranks @p members.  With more ranks than cores, each rank gets all of @p cores.
/// @param whole  @p cores are all cores of the host; with more ranks than cores, no rank is bound then
void divide(std::vector<RankResources>& shares, const std::vector<int>& members, const std::vector<Core>& cores,
            bool whole) {
  const int count = static_cast<int>(members.size());
  const bool enough = cores.size() >= members.size();
  for (int i = 0; i < count; ++i) {
    RankResources& share = shares[static_cast<std::size_t>(members[static_cast<std::size_t>(i)])];
    if (enough) {
      take_cores(share, part_of(cores, i, count));
    } else if (!whole) {
      take_cores(share, cores);
      share.threads = 1;
    }
  }
}

std::vector<Core> on_node(const std::vector<Core>& cores, int node) {
  std::vector<Core> out;
  for (const Core& c : cores)
    if (c.node == node) out.push_back(c);
  return out;
}

/// Assigns network interfaces in turn to the ranks of one NUMA node.  Prefers InfiniBand, then interfaces of the node.
void choose_nics(std::vector<RankResources>& shares, const std::vector<Nic>& nics) {
  if (nics.empty()) return;
  std::map<int, int> turn;
  const bool infiniband = std::any_of(nics.begin(), nics.end(), [](const Nic& n) { return n.infiniband; });
  for (RankResources& share : shares) {
    const int node = share.gpu && share.gpu->node >= 0 ? share.gpu->node : share.node;
    std::vector<const Nic*> near, far;
    for (const Nic& n : nics) {
      if (n.infiniband != infiniband) continue;
      (n.node == node && node >= 0 ? near : far).push_back(&n);
    }
    const std::vector<const Nic*>& from = near.empty() ? far : near;
    share.nic = from[static_cast<std::size_t>(turn[near.empty() ? -1 : node]++) % from.size()]->name;
  }
}

}  // namespace

std::optional<GpuMode> gpu_mode(const std::string& text) {
  for (const GpuMode mode : {GpuMode::all, GpuMode::own, GpuMode::none})
    if (text == name_of(mode)) return mode;
  return {};
}

const char* name_of(GpuMode mode) { return mode == GpuMode::all ? "all" : mode == GpuMode::own ? "own" : "none"; }

std::vector<Core> part_of(const std::vector<Core>& cores, int index, int count) {
  const std::size_t n = cores.size(), i = static_cast<std::size_t>(index), k = static_cast<std::size_t>(count);
  using Offset = std::vector<Core>::difference_type;
  return {cores.begin() + static_cast<Offset>(i * n / k), cores.begin() + static_cast<Offset>((i + 1) * n / k)};
}

std::vector<RankResources> divide_machine(const Machine& machine, int local_size, GpuMode mode, bool share_gpus) {
  std::vector<RankResources> shares(static_cast<std::size_t>(local_size));
  const std::size_t gpus = mode == GpuMode::none ? 0 : machine.gpus.size();
  if (gpus && gpus < shares.size() && !share_gpus)
    throw Error(Code::usage, "",
                count_of(local_size, "rank") + " on a host with " + count_of(static_cast<long long>(gpus), "GPU"),
                "start fewer there, or give --share-gpus, or --gpus none for work on the CPU");
  std::map<int, std::vector<int>> by_node;
  for (int i = 0; i < local_size; ++i) {
    RankResources& share = shares[static_cast<std::size_t>(i)];
    int node = -1;
    if (gpus) {
      share.gpu = machine.gpus[static_cast<std::size_t>(i) % gpus];
      if (!on_node(machine.cores, share.gpu->node).empty()) node = share.gpu->node;
    }
    by_node[node].push_back(i);
  }
  for (const auto& [node, members] : by_node) {
    std::vector<Core> cores;
    if (node >= 0) {
      cores = on_node(machine.cores, node);
    } else {  // no GPU, or its node is not known: the nodes without other ranks' GPUs; if there are none, all nodes
      for (const Core& c : machine.cores)
        if (!by_node.contains(c.node)) cores.push_back(c);
      if (cores.empty()) cores = machine.cores;
    }
    divide(shares, members, cores, cores.size() == machine.cores.size());
  }
  const bool several = std::any_of(machine.cores.begin(), machine.cores.end(),
                                   [&](const Core& c) { return c.node != machine.cores[0].node; });
  for (RankResources& share : shares)
    if (several && !share.cpus.empty()) share.memory_node = share.node;
  choose_nics(shares, machine.nics);
  return shares;
}

std::optional<std::string> visible_devices(const RankResources& share, GpuMode mode) {
  if (mode == GpuMode::none) return "";
  if (mode == GpuMode::all || !share.gpu) return {};
  return share.gpu->uuid.empty() ? std::to_string(share.gpu->index) : share.gpu->uuid;
}

}  // namespace hvd::placement

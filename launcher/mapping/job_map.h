/// @file job_map.h — the host and the share of each rank.  Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "launcher/hosts/allocation.h"
#include "placement/rank_resources.h"

namespace hvd::launcher {

struct MappedRank {
  int rank = 0;
  int host = 0;  ///< index into JobMap::hosts
  int local_rank = 0, local_size = 1;
  int cross_rank = 0, cross_size = 1;
  std::optional<placement::RankResources> share;  ///< cores, GPU, network interface; nothing: the host decides
  bool is_spare = false;                          ///< in an elastic job: bound to no cores
};

struct MappedHost {
  std::string name;
  bool local = false;
  int ranks = 0;
  std::vector<std::string> gpus;  ///< HostSlots::gpus
};

struct JobMap {
  std::vector<MappedHost> hosts;  ///< hosts with at least one rank
  std::vector<MappedRank> ranks;  ///< [np], by rank
  std::string source;             ///< of the allocation

  const MappedHost& host_of(int rank) const {
    return hosts[static_cast<std::size_t>(ranks[static_cast<std::size_t>(rank)].host)];
  }
  bool all_local() const;
};

/// Fills the hosts' slots with ranks, host after host.  cross_rank: the host's index among the hosts that have this
/// local_rank.  @p local[i] says whether hosts[i] is this machine; several names of this machine become one host.
JobMap map_ranks(const Allocation& allocation, const std::vector<bool>& local, int np);

/// Sets the shares of the ranks on hosts[i] from machines[i], if that machine is known.  Throws Error{usage} that names
/// a host with fewer GPUs than ranks.
void share_hosts(JobMap& map, const std::vector<std::optional<placement::Machine>>& machines, placement::GpuMode mode,
                 bool share_gpus);

}  // namespace hvd::launcher

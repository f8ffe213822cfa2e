/// @file plan.h — which rank goes where.  Pure.
#pragma once
#include <string>
#include <vector>

#include "launcher/alloc/allocation.h"

namespace hvd::launcher {

struct RankPlace {
  int rank = 0;
  int host = 0;  ///< index into Plan::hosts
  int local_rank = 0, local_size = 1;
  int cross_rank = 0, cross_size = 1;
  std::vector<int> cpus;  ///< logical CPUs; empty: that host decides
};

struct PlanHost {
  std::string name;
  bool local = false;
  int ranks = 0;
};

struct Plan {
  std::vector<PlanHost> hosts;   ///< those with at least one rank
  std::vector<RankPlace> ranks;  ///< [np], by rank
  std::string source;            ///< of the allocation

  const PlanHost& host_of(int rank) const {
    return hosts[static_cast<std::size_t>(ranks[static_cast<std::size_t>(rank)].host)];
  }
  bool all_local() const;
};

/// Hosts in the given order, their slots filled in turn.  cross_rank: index of the host among those that have this
/// local_rank.  @p local[i] says whether hosts[i] is this machine; several names of this machine become one host.
Plan plan_ranks(const Allocation& allocation, const std::vector<bool>& local, int np);

/// One core as hwloc numbers it: the logical CPUs (hardware threads) that it has and this process may use.
using Core = std::vector<int>;

/// The share of local rank @p index of @p count: neighbouring cores, sizes that differ by at most one core; empty when
/// there are more ranks than cores (then nobody is bound).
std::vector<int> core_share(const std::vector<Core>& cores, int index, int count);

/// Fills in cpus for the ranks of this machine.
void share_cores(Plan& plan, const std::vector<Core>& cores);

}  // namespace hvd::launcher

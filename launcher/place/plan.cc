#include "launcher/place/plan.h"

#include <algorithm>

#include "base/error.h"

namespace hvd::launcher {

namespace {

constexpr int most_ranks_of_host = 512;  // the runtime takes no more: most_ranks in runtime/memory/node.h

}  // namespace

bool Plan::all_local() const {
  return std::all_of(hosts.begin(), hosts.end(), [](const PlanHost& h) { return h.local; });
}

Plan plan_ranks(const Allocation& allocation, const std::vector<bool>& local, int np) {
  Plan plan;
  plan.source = allocation.source;
  int this_machine = -1;
  int left = np;
  std::vector<int> host_of_slot_run;
  for (std::size_t i = 0; i < allocation.hosts.size() && left > 0; ++i) {
    const int take = std::min(left, allocation.hosts[i].slots);
    left -= take;
    if (local[i] && this_machine >= 0) {  // a second name of this machine
      plan.hosts[static_cast<std::size_t>(this_machine)].ranks += take;
      continue;
    }
    if (local[i]) this_machine = static_cast<int>(plan.hosts.size());
    plan.hosts.push_back({allocation.hosts[i].host, local[i], take, allocation.hosts[i].gpus});
  }
  for (const PlanHost& host : plan.hosts)
    if (host.ranks > most_ranks_of_host)
      throw Error(Code::usage, host.name,
                  "a host can have " + std::to_string(most_ranks_of_host) + " ranks of a job at most, not " +
                      std::to_string(host.ranks),
                  "start fewer ranks, or name more hosts");
  int rank = 0;
  for (std::size_t h = 0; h < plan.hosts.size(); ++h)
    for (int l = 0; l < plan.hosts[h].ranks; ++l) {
      RankPlace place{rank++, static_cast<int>(h), l, plan.hosts[h].ranks, 0, 0, {}};
      for (std::size_t other = 0; other < plan.hosts.size(); ++other) {
        if (plan.hosts[other].ranks <= l) continue;
        if (other < h) ++place.cross_rank;
        ++place.cross_size;
      }
      plan.ranks.push_back(std::move(place));
    }
  return plan;
}

void share_hosts(Plan& plan, const std::vector<std::optional<place::Machine>>& machines, place::GpuMode mode,
                 bool share_gpus) {
  std::vector<std::vector<place::Share>> shares(plan.hosts.size());
  for (std::size_t h = 0; h < plan.hosts.size() && h < machines.size(); ++h) try {
      if (machines[h]) shares[h] = place::share_machine(*machines[h], plan.hosts[h].ranks, mode, share_gpus);
    } catch (const Error& e) { throw Error(e.code, plan.hosts[h].name, e.what(), e.hint); }
  for (RankPlace& place : plan.ranks)
    if (const auto& host = shares[static_cast<std::size_t>(place.host)]; !host.empty())
      place.share = host[static_cast<std::size_t>(place.local_rank)];
}

}  // namespace hvd::launcher

#include "launcher/mapping/job_map.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"

namespace hvd::launcher {

namespace {

constexpr int most_ranks_of_host = 512;  // the runtime takes no more: most_ranks in runtime/memory/node.h

}  // namespace

bool JobMap::all_local() const {
  return std::all_of(hosts.begin(), hosts.end(), [](const MappedHost& h) { return h.local; });
}

JobMap map_ranks(const Allocation& allocation, const std::vector<bool>& local, int np) {
  JobMap map;
  map.source = allocation.source;
  int this_machine = -1;
  int left = np;
  std::vector<int> host_of_slot_run;
  for (std::size_t i = 0; i < allocation.hosts.size() && left > 0; ++i) {
    const int take = std::min(left, allocation.hosts[i].slots);
    left -= take;
    if (local[i] && this_machine >= 0) {  // a second name of this machine
      map.hosts[static_cast<std::size_t>(this_machine)].ranks += take;
      continue;
    }
    if (local[i]) this_machine = static_cast<int>(map.hosts.size());
    map.hosts.push_back({allocation.hosts[i].host, local[i], take, allocation.hosts[i].gpus});
  }
  for (const MappedHost& host : map.hosts)
    if (host.ranks > most_ranks_of_host)
      throw Error(Code::usage, host.name,
                  formatted("a host can have {} ranks of a job at most, not {}", most_ranks_of_host, host.ranks),
                  "start fewer ranks, or name more hosts");
  int rank = 0;
  for (std::size_t h = 0; h < map.hosts.size(); ++h)
    for (int l = 0; l < map.hosts[h].ranks; ++l) {
      MappedRank place{rank++, static_cast<int>(h), l, map.hosts[h].ranks, 0, 0, {}};
      for (std::size_t other = 0; other < map.hosts.size(); ++other) {
        if (map.hosts[other].ranks <= l) continue;
        if (other < h) ++place.cross_rank;
        ++place.cross_size;
      }
      map.ranks.push_back(std::move(place));
    }
  return map;
}

void share_hosts(JobMap& map, const std::vector<std::optional<placement::Machine>>& machines, placement::GpuMode mode,
                 bool share_gpus) {
  std::vector<std::vector<placement::RankResources>> shares(map.hosts.size());
  for (std::size_t h = 0; h < map.hosts.size() && h < machines.size(); ++h) try {
      if (machines[h]) shares[h] = placement::divide_machine(*machines[h], map.hosts[h].ranks, mode, share_gpus);
    } catch (const Error& e) { throw Error(e.code, map.hosts[h].name, e.what(), e.hint); }
  for (MappedRank& place : map.ranks)
    if (const auto& host = shares[static_cast<std::size_t>(place.host)]; !host.empty())
      place.share = host[static_cast<std::size_t>(place.local_rank)];
}

}  // namespace hvd::launcher

#include "launcher/job/elastic_plan.h"

#include <algorithm>
#include <deque>

#include "base/error.h"
#include "base/format.h"
#include "base/text.h"

namespace hvd::launcher {

std::optional<ElasticPlan> elastic_plan(const Settings& settings, const Allocation& allocation, int np) {
  const std::optional<int> least = settings.integer("min-np"), most = settings.integer("max-np");
  const int spares = settings.integer("spares").value_or(0);
  if (!least && !most && !settings.has("host-discovery-script")) {
    if (spares > 0)
      throw Error(Code::usage, "--spares", "only ranks of an elastic job are replaced",
                  "add --min-np, --max-np or --host-discovery-script, or leave out --spares");
    return std::nullopt;
  }
  if (spares > 0 && settings.text("gpus") == "own")
    throw Error(Code::usage, "--spares", "a spare does not know yet which GPU will be its own",
                "add --gpus all, where hvd.local_rank() says which, or leave out --spares");
  if (settings.text("launcher") == "mpirun" || !settings.text("mpi-args").empty())
    throw Error(Code::usage, "--launcher", "mpirun cannot start ranks later, so an elastic job does without it",
                "leave out --launcher mpirun and --mpi-args");
  ElasticPlan plan;
  plan.limits.world = {least.value_or(np), most, !settings.text("state-dir").empty(), spares};
  plan.limits.wait_seconds = settings.number("elastic-timeout");
  plan.limits.most_resets = settings.integer("reset-limit");
  if (plan.limits.world.least > np)
    throw Error(Code::usage, "--min-np",
                formatted("{} is more than the {} to start with", *least, count_of(np, "rank")),
                "give a smaller --min-np, or a larger -np");
  if (most && *most < np)
    throw Error(Code::usage, "--max-np", formatted("{} is less than the {} to start with", *most, count_of(np, "rank")),
                "give a larger --max-np, or a smaller -np");
  if (settings.has("blacklist-cooldown-range")) {
    const std::vector<std::string> two = words(settings.text("blacklist-cooldown-range"));
    plan.cooldown = {static_cast<int>(to_integer(two.at(0)).value_or(0)),
                     static_cast<int>(to_integer(two.at(1)).value_or(0))};
    if (plan.cooldown->first > plan.cooldown->second || plan.cooldown->first < 0)
      throw Error(Code::usage, "--blacklist-cooldown-range", "takes the least and the most seconds, such as 10 300");
  }
  for (const HostSlots& h : allocation.hosts) plan.hosts.push_back({h.host, h.slots});
  return plan;
}

std::map<int, SlotPlace> places_of(const JobMap& map, const Allocation& allocation, const std::vector<bool>& local) {
  std::map<std::string, std::deque<SlotPlace>> free;  // by the map's name of a host
  std::string here;
  for (std::size_t i = 0; i < allocation.hosts.size(); ++i) {
    const HostSlots& h = allocation.hosts[i];
    if (local[i] && here.empty()) here = h.host;
    for (int slot = 0; slot < h.slots; ++slot) free[local[i] ? here : h.host].push_back({h.host, slot});
  }
  std::map<int, SlotPlace> places;
  for (const MappedRank& r : map.ranks) {
    auto& slots = free[map.host_of(r.rank).name];
    places[r.rank] = slots.front();
    slots.pop_front();
  }
  return places;
}

}  // namespace hvd::launcher

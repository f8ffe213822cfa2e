#include "launcher/job/elastic_plan.h"

#include <algorithm>
#include <deque>

#include "base/error.h"
#include "base/format.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

bool is_elastic(const Settings& settings) {
  return settings.integer("min-np") || settings.integer("max-np") || settings.has("host-discovery-script");
}

/// @param what  "2 ranks to start with"
Error too_many(int least, const std::string& what) {
  return {Code::usage, "--min-np", formatted("{} is more than the {}", least, what),
          "give a smaller --min-np, or a larger -np"};
}

}  // namespace

void check_elastic_options(const Settings& settings) {
  const std::optional<int> least = settings.integer("min-np"), most = settings.integer("max-np"),
                           np = settings.integer("num-proc");
  const int spares = settings.integer("spares").value_or(0);
  if (!is_elastic(settings)) {
    if (spares > 0)
      throw Error(Code::usage, "--spares", "only ranks of an elastic job are replaced",
                  "add --min-np, --max-np or --host-discovery-script, or leave out --spares");
    return;
  }
  if (spares > 0 && settings.text("gpus") == "own")
    throw Error(Code::usage, "--spares", "a spare gets its GPU only when it becomes a rank",
                "add --gpus all, where hvd.local_rank() says which, or leave out --spares");
  if (settings.text("launcher") == "mpirun" || !settings.text("mpi-args").empty())
    throw Error(Code::usage, "--launcher", "mpirun cannot start ranks later, so an elastic job does without it",
                "leave out --launcher mpirun and --mpi-args");
  if (least && np && *least > *np) throw too_many(*least, count_of(*np, "rank") + " to start with");
  if (most && np && *most < *np)
    throw Error(Code::usage, "--max-np",
                formatted("{} is less than the {} to start with", *most, count_of(*np, "rank")),
                "give a larger --max-np, or a smaller -np");
  if (least && most && *least > *most)
    throw Error(Code::usage, "--min-np", formatted("{} is more than --max-np {}", *least, *most),
                "give a smaller --min-np, or a larger --max-np");
}

std::optional<ElasticPlan> elastic_plan(const Settings& settings, const Allocation& allocation, int np) {
  if (!is_elastic(settings)) return std::nullopt;
  const std::optional<int> least = settings.integer("min-np"), most = settings.integer("max-np");
  if (least && *least > np) throw too_many(*least, count_of(np, "rank") + " to start with");
  ElasticPlan plan;
  plan.limits.world = {least.value_or(std::min(np, most.value_or(np))), most, !settings.text("state-dir").empty(),
                       settings.integer("spares").value_or(0)};
  plan.limits.wait_seconds = plan.limits.prepare_seconds = settings.number("elastic-timeout");
  plan.limits.most_resets = settings.integer("reset-limit");
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

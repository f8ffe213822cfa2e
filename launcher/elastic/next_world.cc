#include "launcher/elastic/next_world.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>

namespace hvd::launcher {
namespace {

using Workers = std::vector<const ElasticWorker*>;

bool is_ready(const ElasticWorker* w) { return w->stage != WorkerStage::starting; }
bool has_state(const ElasticWorker* w) { return w->stage == WorkerStage::member; }

/// By host, hosts in the order of their first worker; within a host as they are.
std::vector<int> in_order(const Workers& workers) {
  std::map<std::string, std::size_t> first;
  for (const ElasticWorker* w : workers) first.try_emplace(w->place.host, first.size());
  Workers sorted = workers;
  std::stable_sort(sorted.begin(), sorted.end(), [&](const ElasticWorker* a, const ElasticWorker* b) {
    return first.at(a->place.host) < first.at(b->place.host);
  });
  std::vector<int> numbers;
  for (const ElasticWorker* w : sorted) numbers.push_back(w->number);
  return numbers;
}

Workers ready_ones(const Workers& workers) {
  Workers ready;
  std::copy_if(workers.begin(), workers.end(), std::back_inserter(ready), is_ready);
  return ready;
}

bool can_go_on(const Workers& ready, const std::vector<ElasticWorker>& alive, const WorldLimits& limits) {
  const bool all_are_new = std::none_of(alive.begin(), alive.end(), [](const auto& w) { return has_state(&w); });
  return static_cast<int>(ready.size()) >= limits.least &&
         (std::any_of(ready.begin(), ready.end(), has_state) || (limits.state_is_kept && all_are_new));
}

}  // namespace

WorldPlan next_world(const std::vector<ElasticWorker>& alive, const std::vector<ElasticHost>& hosts,
                     const WorldLimits& limits, const std::set<SlotPlace>& blocked) {
  const auto most = static_cast<std::size_t>(limits.most.value_or(std::numeric_limits<int>::max()));
  Workers staying, homeless;
  for (const ElasticWorker& w : alive) {
    const auto host =
        std::find_if(hosts.begin(), hosts.end(), [&](const ElasticHost& h) { return h.name == w.place.host; });
    const bool has_slot = host != hosts.end() && w.place.slot < host->slots;
    (has_slot && staying.size() < most ? staying : homeless).push_back(&w);
  }
  WorldPlan plan;
  std::size_t count = staying.size();
  for (const ElasticHost& host : hosts)
    for (int slot = 0; slot < host.slots && count < most; ++slot) {
      const SlotPlace place{host.name, slot};
      if (blocked.contains(place)) continue;
      if (std::any_of(alive.begin(), alive.end(), [&](const ElasticWorker& w) { return w.place == place; })) continue;
      plan.start.push_back(place);
      ++count;
    }
  Workers ready = ready_ones(staying);
  if (!can_go_on(ready, alive, limits) && std::any_of(homeless.begin(), homeless.end(), has_state)) {
    plan.holds_on = true;  // the state is with them, or the numbers are
    Workers all;
    for (const ElasticWorker& w : alive)
      if (has_state(&w) || std::find(staying.begin(), staying.end(), &w) != staying.end()) all.push_back(&w);
    std::erase_if(homeless, has_state);
    ready = ready_ones(all);
  }
  for (const ElasticWorker* w : homeless) plan.leave.push_back(w->number);
  plan.members = in_order(ready);
  plan.suffices = can_go_on(ready, alive, limits);
  return plan;
}

}  // namespace hvd::launcher

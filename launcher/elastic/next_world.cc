#include "launcher/elastic/next_world.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>

namespace hvd::launcher {
namespace {

using Workers = std::vector<const ElasticWorker*>;

bool is_ready(const ElasticWorker* w) { return w->stage != WorkerStage::starting; }
bool is_doubtful(const ElasticWorker* w) { return w->stage == WorkerStage::doubtful; }
bool has_state(const ElasticWorker* w) { return w->stage == WorkerStage::member || is_doubtful(w); }

/// Sorts workers by host, and returns their numbers.  Hosts keep the order of their first workers, and workers keep
/// their order within a host.
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

/// The spare that gets the host's next free slot: a ready spare, if possible.  nullptr: the host has no spare.
ElasticWorker* spare_of(std::vector<ElasticWorker>& workers, const std::string& host) {
  ElasticWorker* best = nullptr;
  for (ElasticWorker& w : workers)
    if (w.place.is_spare && w.place.host == host && (!best || (!is_ready(best) && is_ready(&w)))) best = &w;
  return best;
}

bool has_worker(const std::vector<ElasticWorker>& workers, const SlotPlace& place) {
  return std::any_of(workers.begin(), workers.end(), [&](const ElasticWorker& w) { return w.place == place; });
}

}  // namespace

WorldPlan next_world(std::vector<ElasticWorker> alive, const std::vector<ElasticHost>& hosts, const WorldLimits& limits,
                     const std::set<SlotPlace>& blocked) {
  const auto most = static_cast<std::size_t>(limits.most.value_or(std::numeric_limits<int>::max()));
  Workers staying, homeless;
  for (const ElasticWorker& w : alive) {
    const auto host =
        std::find_if(hosts.begin(), hosts.end(), [&](const ElasticHost& h) { return h.name == w.place.host; });
    if (w.place.is_spare && host != hosts.end()) continue;
    const bool has_slot = host != hosts.end() && w.place.slot < host->slots;
    (has_slot && staying.size() < most ? staying : homeless).push_back(&w);
  }
  WorldPlan plan;
  std::size_t count = staying.size();
  for (const ElasticHost& host : hosts)
    for (int slot = 0; slot < host.slots && count < most; ++slot) {
      const SlotPlace place{host.name, slot};
      if (blocked.contains(place) || has_worker(alive, place)) continue;
      ++count;
      if (ElasticWorker* const spare = spare_of(alive, host.name)) {
        spare->place = place;
        plan.promote.emplace_back(spare->number, place);
        staying.push_back(spare);
      } else {
        plan.start.push_back(place);
      }
    }
  for (const ElasticHost& host : hosts)
    for (int i = 0; i < limits.spares; ++i)
      if (const SlotPlace place{host.name, i, true}; !blocked.contains(place) && !has_worker(alive, place))
        plan.start.push_back(place);
  std::sort(staying.begin(), staying.end());  // restores the order of `alive`
  Workers ready = ready_ones(staying);
  const bool any_may_have_it = std::any_of(ready.begin(), ready.end(), is_doubtful);
  if ((any_may_have_it || !can_go_on(ready, alive, limits)) &&
      std::any_of(homeless.begin(), homeless.end(), has_state)) {
    plan.holds_on = true;  // workers without a slot have the state, or may have it, or are needed for the least number
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

std::vector<int> expected_world(int worker, std::vector<ElasticWorker> alive, const std::vector<ElasticHost>& hosts,
                                const WorldLimits& limits, const std::set<SlotPlace>& blocked) {
  const auto me = std::find_if(alive.begin(), alive.end(), [&](const auto& w) { return w.number == worker; });
  if (me == alive.end()) return {worker};
  const SlotPlace place = me->place;
  std::erase_if(alive, [&](const ElasticWorker& w) { return w.place.is_spare && w.number != worker; });
  for (ElasticWorker& w : alive)
    if (w.stage == WorkerStage::starting) w.stage = WorkerStage::waiting;
  const auto last = std::find_if(alive.rbegin(), alive.rend(), [&](const ElasticWorker& w) {
    return has_state(&w) && !w.place.is_spare && w.place.host == place.host;
  });
  if (place.is_spare && last != alive.rend() &&
      std::count_if(alive.begin(), alive.end(), [](const auto& w) { return has_state(&w); }) > 1)
    alive.erase(std::next(last).base());
  std::vector<int> members = next_world(alive, hosts, limits, blocked).members;
  if (std::find(members.begin(), members.end(), worker) == members.end()) members.push_back(worker);
  return members;
}

}  // namespace hvd::launcher

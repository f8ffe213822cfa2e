/// The members of the next world: by hand, and at random.
#include "launcher/elastic/next_world.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>

#include "launcher/elastic/slot_history.h"

using namespace hvd::launcher;
using enum WorkerStage;

namespace {

using Numbers = std::vector<int>;

ElasticWorker worker(int number, const std::string& host, int slot, WorkerStage stage = member) {
  return {number, {host, slot}, stage};
}

}  // namespace

TEST_CASE("next world: survivors keep their order, and a slot that is free is filled") {
  const WorldPlan plan = next_world({worker(0, "a", 0), worker(2, "b", 0)}, {{"a", 2}, {"b", 1}}, {2, {}}, {});
  CHECK(plan.members == Numbers{0, 2});
  CHECK(plan.suffices);
  CHECK(plan.start == std::vector<SlotPlace>{{"a", 1}});
  CHECK(plan.leave.empty());
}

TEST_CASE("next world: a new worker stands with its host, behind the members there") {
  const std::vector<ElasticWorker> alive{worker(1, "b", 1), worker(5, "a", 0), worker(7, "b", 0, waiting),
                                         worker(8, "c", 0, starting)};
  const WorldPlan plan = next_world(alive, {{"a", 1}, {"b", 2}, {"c", 1}}, {1, {}}, {});
  CHECK(plan.members == Numbers{1, 7, 5});  // 8 is not ready
}

TEST_CASE("next world: what a new worker is told of it") {
  const auto spare = [](int number, const std::string& host, WorkerStage stage = starting) {
    return ElasticWorker{number, {host, 0, true}, stage};
  };
  const std::vector<ElasticHost> hosts{{"a", 2}, {"b", 2}};
  std::vector<ElasticWorker> alive{worker(0, "a", 0), worker(1, "b", 0), worker(2, "a", 1, starting),
                                   worker(3, "b", 1, waiting)};
  CHECK(expected_world(2, alive, hosts, {}, {}) == Numbers{0, 2, 1, 3});
  CHECK(expected_world(3, alive, hosts, {}, {}) == Numbers{0, 2, 1, 3});
  alive = {worker(0, "a", 0), worker(1, "a", 1), worker(2, "b", 0), worker(3, "b", 1)};
  alive.push_back(spare(4, "a")), alive.push_back(spare(5, "a", waiting)), alive.push_back(spare(6, "b"));
  CHECK(expected_world(4, alive, hosts, {}, {}) == Numbers{0, 4, 2, 3});  // the same as after the death of 1
  CHECK(expected_world(6, alive, hosts, {}, {}) == Numbers{0, 1, 2, 6});
  CHECK(expected_world(6, {worker(0, "b", 0), worker(1, "a", 0), spare(6, "b")}, {{"b", 1}, {"a", 1}}, {}, {}) ==
        Numbers{1, 6});  // after the worker that would be rank 0
  CHECK(expected_world(6, {worker(0, "b", 0), spare(6, "b")}, {{"b", 1}}, {}, {}) == Numbers{0, 6});  // never rank 0
  CHECK(expected_world(7, {worker(0, "a", 0), worker(7, "c", 0, starting)}, hosts, {}, {}) == Numbers{0, 7});
  CHECK(expected_world(7, {worker(7, "a", 0, starting)}, hosts, {}, {}) == Numbers{7});  // no worker lives
}

TEST_CASE("next world: no more workers than the limit, and none in a blocked slot") {
  const WorldPlan plan = next_world({worker(0, "a", 0)}, {{"a", 4}}, {1, 3}, {{"a", 1}});
  CHECK(plan.start == std::vector<SlotPlace>{{"a", 2}, {"a", 3}});
}

TEST_CASE("next world: a spare gets the slot that is free on its host, and another spare is started") {
  const auto spare = [](int number, const std::string& host, int i, WorkerStage stage) {
    return ElasticWorker{number, {host, i, true}, stage};
  };
  const std::vector<ElasticWorker> alive{worker(0, "a", 0), worker(1, "b", 0), spare(4, "a", 0, starting),
                                         spare(5, "a", 1, waiting), spare(6, "b", 0, waiting)};
  WorldPlan plan = next_world(alive, {{"a", 2}, {"b", 1}}, {.spares = 2}, {});
  CHECK(plan.members == Numbers{0, 5, 1});  // not 4, which still imports
  REQUIRE(plan.promote.size() == 1);
  CHECK(plan.promote[0] == std::pair{5, SlotPlace{"a", 1}});
  CHECK(plan.start == std::vector<SlotPlace>{{"a", 1, true}, {"b", 1, true}});
  CHECK(plan.leave.empty());
  plan = next_world(alive, {{"a", 2}, {"b", 1}}, {.most = 2, .spares = 1}, {});
  CHECK(plan.members == Numbers{0, 1});  // the limit is reached
  CHECK(plan.promote.empty());
  plan = next_world(alive, {{"a", 2}, {"b", 1}}, {.spares = 1}, {{"a", 1}});
  CHECK(plan.members == Numbers{0, 1});  // the slot has failed twice
  plan = next_world(alive, {{"b", 1}}, {}, {});
  CHECK(plan.leave == Numbers{0, 4, 5});  // with their host
  CHECK(plan.promote.empty());
}

TEST_CASE("next world: a host that is named no more is left, once others have the state") {
  const std::vector<ElasticHost> hosts{{"b", 1}};
  SUBCASE("others have it") {
    const WorldPlan plan = next_world({worker(0, "a", 0), worker(1, "b", 0)}, hosts, {1, {}}, {});
    CHECK(plan.members == Numbers{1});
    CHECK(plan.leave == Numbers{0});
  }
  SUBCASE("a new one is ready: one world with both, so that it gets the state") {
    const WorldPlan plan = next_world({worker(0, "a", 0), worker(1, "b", 0, waiting)}, hosts, {1, {}}, {});
    CHECK(plan.members == Numbers{0, 1});
    CHECK(plan.holds_on);
    CHECK(plan.leave.empty());
  }
  SUBCASE("no host at all: it goes on where it is") {
    const WorldPlan plan = next_world({worker(0, "a", 0), worker(1, "a", 1)}, {}, {1, {}}, {});
    CHECK(plan.members == Numbers{0, 1});
    CHECK(plan.suffices);
    CHECK(plan.start.empty());
  }
}

TEST_CASE(
    "next world: if no worker surely has the state, one that may have it stays, even if its host is no longer listed") {
  const std::vector<ElasticWorker> alive{worker(6, "a", 0, doubtful), worker(4, "b", 0, doubtful),
                                         worker(7, "c", 0, starting)};
  const WorldPlan plan = next_world(alive, {{"a", 1}, {"c", 1}}, {1, {}}, {});
  CHECK(plan.members == Numbers{6, 4});
  CHECK(plan.holds_on);
  CHECK(plan.suffices);
  CHECK(plan.leave.empty());
}

TEST_CASE("next world: too few, or none with the state, do not suffice") {
  CHECK_FALSE(next_world({worker(0, "a", 0)}, {{"a", 2}}, {2, {}}, {}).suffices);
  CHECK_FALSE(next_world({worker(3, "a", 0, waiting), worker(4, "a", 1, waiting)}, {{"a", 2}}, {1, {}}, {}).suffices);
}

TEST_CASE("next world: new ones alone suffice where the state is kept elsewhere, but not beside one who has it") {
  const ElasticWorker first = worker(3, "a", 0, waiting), second = worker(4, "a", 1, waiting);
  const WorldPlan plan = next_world({first, second}, {{"a", 2}}, {2, {}, true}, {});
  CHECK(plan.suffices);
  CHECK(plan.members == Numbers{3, 4});
  CHECK(next_world({worker(0, "b", 0), first, second}, {{"a", 2}}, {2, {}, true}, {}).members == Numbers{0, 3, 4});
}

TEST_CASE("next world at random: what holds for every world") {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 20000; ++round) {
    std::vector<ElasticHost> hosts;
    for (const char* name : {"a", "b", "c", "d"})
      if (below(3) > 0) hosts.push_back({name, below(4)});
    std::vector<ElasticWorker> alive;
    int number = 0;
    for (const char* name : {"c", "a", "b", "d"})
      for (int slot = 0; slot < 3; ++slot)
        if (below(2)) alive.push_back(worker(number += 1 + below(3), name, slot, WorkerStage{below(3)}));
    std::stable_sort(alive.begin(), alive.end(), [](const ElasticWorker& x, const ElasticWorker& y) {
      return (x.stage == member) > (y.stage == member);
    });
    WorldLimits limits{1 + below(4), {}, below(2) == 0};
    if (below(2)) limits.most = limits.least + below(5);
    limits.spares = below(3);
    for (const char* name : {"b", "d", "a"})
      if (below(3) == 0) alive.push_back({number += 1, {name, 0, true}, WorkerStage{below(2)}});
    const WorldPlan plan = next_world(alive, hosts, limits, {});
    CAPTURE(round);
    std::map<int, const ElasticWorker*> by_number;
    for (const ElasticWorker& w : alive) by_number[w.number] = &w;
    // Each member once, none that starts; hosts in one piece.
    std::vector<std::string> order;
    std::map<std::string, std::vector<int>> of_host;
    for (const int m : plan.members) {
      REQUIRE(by_number.contains(m));
      const ElasticWorker& w = *by_number[m];
      CHECK(w.stage != starting);
      if (order.empty() || order.back() != w.place.host) {
        CHECK(std::find(order.begin(), order.end(), w.place.host) == order.end());
        order.push_back(w.place.host);
      }
      of_host[w.place.host].push_back(m);
    }
    CHECK(std::set<int>(plan.members.begin(), plan.members.end()).size() == plan.members.size());
    // On a host the order is unchanged.
    for (const auto& [host, members] : of_host) {
      Numbers before;
      for (const ElasticWorker& w : alive)
        if (std::find(members.begin(), members.end(), w.number) != members.end()) before.push_back(w.number);
      CHECK(before == members);
    }
    const bool somebody =
        std::any_of(alive.begin(), alive.end(), [](const ElasticWorker& w) { return w.stage == member; });
    if (plan.suffices) {
      CHECK(static_cast<int>(plan.members.size()) >= limits.least);
      if (somebody || !limits.state_is_kept)
        CHECK(by_number[plan.members[0]]->stage == member);  // rank 0 has the state
    }
    const auto slots = std::count_if(plan.start.begin(), plan.start.end(), [](const auto& p) { return !p.is_spare; });
    if (limits.most && !plan.holds_on) CHECK(static_cast<int>(plan.members.size()) + slots <= *limits.most);
    std::vector<ElasticWorker> placed = alive;
    for (const auto& [promoted, place] : plan.promote)
      for (ElasticWorker& w : placed)
        if (w.number == promoted) {
          CHECK(w.place.is_spare);
          CHECK(w.place.host == place.host);
          w.place = place;
        }
    std::set<SlotPlace> taken;
    for (const ElasticWorker& w : placed) CHECK(taken.insert(w.place).second);
    for (const SlotPlace& place : plan.start) {
      CHECK(taken.insert(place).second);
      CHECK(std::any_of(hosts.begin(), hosts.end(), [&](const ElasticHost& h) {
        return h.name == place.host && place.slot < (place.is_spare ? limits.spares : h.slots);
      }));
    }
    for (const int m : plan.members)
      CHECK(std::any_of(placed.begin(), placed.end(),
                        [&](const ElasticWorker& w) { return w.number == m && !w.place.is_spare; }));
    for (const int gone : plan.leave)
      CHECK(std::find(plan.members.begin(), plan.members.end(), gone) == plan.members.end());
    // No worker with the state leaves if no other worker has it.
    if (somebody)
      CHECK(
          std::any_of(plan.members.begin(), plan.members.end(), [&](int m) { return by_number[m]->stage == member; }));
  }
}

TEST_CASE("slot history: the second failure counts; a cool-down doubles, within its limits") {
  SlotHistory for_ever;
  CHECK(for_ever.failed({"a", 0}, 10) == 0);
  CHECK(for_ever.blocked(10).empty());
  CHECK_FALSE(for_ever.failed({"a", 0}, 10).has_value());
  CHECK(for_ever.blocked(1e9).contains({"a", 0}));
  CHECK_FALSE(for_ever.blocked(1e9).contains({"a", 1}));

  SlotHistory cooling({{2, 20}});
  CHECK(cooling.failed({"a", 0}, 0) == 0);
  for (double least = 2; least <= 16; least *= 2) {
    const double seconds = cooling.failed({"a", 0}, 100).value();
    CHECK(seconds >= least);
    CHECK(seconds <= std::min(2 * least, 20.0));
    CHECK(cooling.blocked(100 + seconds - 0.1).size() == 1);
    CHECK(cooling.blocked(100 + seconds + 0.1).empty());
  }
}

/// Names that keep their ids: the coordinator alone, with one rank that executes all commands at once.
#include "negotiate/coordinator.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "negotiate/idset.h"
#include "world_of_threads.h"

using namespace hvd;
using namespace hvd::negotiate;

namespace {

/// A coordinator, and the contents of its commands: the id of each name, and its last batch.
class Band {
 public:
  Band(std::uint32_t ids, std::uint32_t capacity)
      : ids_(ids),
        coordinator_({.ranks = 1, .ids = ids, .capacity = capacity},
                     [this](Command type, std::string_view body) { carry_out(type, body); }) {}

  void record(const std::string& name) {
    Signature s;
    s.ndim = 1;
    s.dims[0] = 4;
    coordinator_.record(RankSet::of({0}), coordinator_.published(), s, name);
  }
  void ready(const std::string& name) { coordinator_.ready(id_of.at(name)); }
  void decide() {
    coordinator_.decide(coordinator_.published(), [] { return std::int64_t{0}; });
    coordinator_.executed(coordinator_.published());
  }

  std::map<std::string, std::uint32_t> id_of;
  std::map<std::string, std::uint64_t> used;  ///< number of the last command `batch` with it
  std::vector<std::string> evicted;           ///< in order
  std::vector<std::string> ran;

 private:
  void carry_out(Command type, std::string_view body) {
    ++number_;
    ByteReader r(body);
    if (type == Command::assign) {
      const auto id = r.get<std::uint32_t>();
      r.get<std::uint32_t>();
      const std::string name(r.rest());
      if (const auto old = id_of.find(name); old != id_of.end()) names_.erase(old->second);
      id_of[name] = id;
      names_[id] = name;
      used[name] = last_batch_;
    } else if (type == Command::evict) {
      const auto id = r.get<std::uint32_t>();
      const std::string name = name_of(id);
      names_.erase(id);
      evicted.push_back(name);
      id_of.erase(name);
      used.erase(name);
    } else if (type == Command::batch) {
      r.get<std::uint32_t>();
      r.get<std::uint32_t>();
      last_batch_ = number_;
      get_ids(r, ids_, [&](std::uint32_t id) {
        ran.push_back(name_of(id));
        used[ran.back()] = number_;
      });
    }
  }
  std::string name_of(std::uint32_t id) const {
    const auto found = names_.find(id);
    return found == names_.end() ? "nobody's" : found->second;
  }

  std::uint32_t ids_;
  std::map<std::uint32_t, std::string> names_;
  std::uint64_t number_ = 0, last_batch_ = 0;
  Coordinator coordinator_;
};

std::string numbered(unsigned n) { return "t" + std::to_string(n); }

}  // namespace

TEST_CASE("coordinator: a new name pushes out the one used longest ago, whatever came between") {
  std::mt19937 random(5);
  Band band(64, 20);
  unsigned next = 0;
  while (next < 20) band.record(numbered(next++)), band.decide();
  REQUIRE(band.evicted.empty());
  for (int round = 0; round < 3000; ++round) {
    band.evicted.clear();
    band.ran.clear();
    // Some of the known tensors are in progress while one or several new ones arrive.
    std::vector<std::string> busy;
    for (const auto& [name, id] : band.id_of)
      if (random() % 4 == 0) busy.push_back(name);
    for (const std::string& name : busy) band.ready(name);
    std::map<std::pair<std::uint64_t, std::uint32_t>, std::string> idle;
    for (const auto& [name, used] : band.used)
      if (std::find(busy.begin(), busy.end(), name) == busy.end()) idle[{used, band.id_of[name]}] = name;
    const unsigned fresh = random() % 3;
    for (unsigned i = 0; i < fresh; ++i) band.record(numbered(next++));
    band.decide();
    REQUIRE(band.evicted.size() == fresh);
    auto oldest = idle.begin();
    for (const std::string& name : band.evicted) REQUIRE(name == (oldest++)->second);
    REQUIRE(band.ran.size() == busy.size() + fresh);
    REQUIRE(band.id_of.size() == 20);
  }
}

TEST_CASE("coordinator: names that come again all keep their ids, and names that come once do not") {
  Band band(20'000, 10'000);
  auto one_by_one = [&](unsigned from, unsigned to) {
    band.evicted.clear();
    unsigned records = 0;
    for (unsigned n = from; n < to; ++n) {
      if (band.id_of.count(numbered(n)))
        band.ready(numbered(n));
      else
        band.record(numbered(n)), ++records;
      band.decide();
    }
    return records;
  };
  CHECK(one_by_one(0, 5000) == 5000);
  CHECK(band.id_of.size() == 1024);
  CHECK(band.evicted.size() == 5000 - 1024);
  one_by_one(0, 5000);
  CHECK(band.id_of.size() == 5000);
  for (int step = 0; step < 3; ++step) {
    CHECK(one_by_one(0, 5000) == 0);
    CHECK(band.evicted.empty());
  }
  CHECK(one_by_one(5000, 20'000) == 15'000);
  CHECK(band.id_of.size() == 8192);
  one_by_one(0, 12'000), one_by_one(0, 12'000);
  CHECK(band.id_of.size() == 10'000);

  Band once(20'000, 10'000);
  for (unsigned n = 0; n < 30'000; ++n) once.record(numbered(n)), once.decide();
  CHECK(once.id_of.size() == 1024);
  for (const auto& [name, id] : once.id_of) REQUIRE(id < 2048);
}

TEST_CASE("coordinator: names that are all in use at once all keep their ids") {
  Band band(20'000, 10'000);
  for (unsigned n = 0; n < 6000; ++n) band.record(numbered(n));
  band.decide();
  band.record("another");
  band.decide();
  CHECK(band.evicted.size() < 2);
  for (unsigned n = 0; n < 10'500; ++n)
    if (band.id_of.count(numbered(n)))
      band.ready(numbered(n));
    else
      band.record(numbered(n));
  band.decide();
  CHECK(band.id_of.size() == 10'500);  // more than the capacity while all of them run
  band.record("one more");
  band.decide();
  CHECK(band.id_of.size() == 10'000);
}

TEST_CASE("coordinator: tensors without names of their own do not evict others") {
  Band band(64, 20);
  for (unsigned i = 0; i < 20; ++i) band.record(numbered(i)), band.decide();
  band.ran.clear();
  for (unsigned i = 0; i < 2000; ++i) {
    band.evicted.clear();
    const std::string name = made_name("allreduce", i);
    band.record(name);
    band.decide();
    REQUIRE(band.ran.back() == name);
    REQUIRE(band.evicted == std::vector<std::string>{name});
  }
  CHECK(band.ran.size() == 2000);
  CHECK(band.id_of.size() == 20);
  for (unsigned i = 0; i < 20; ++i) band.ready(numbered(i));
  band.decide();
  CHECK(band.ran.size() == 2020);
}

TEST_CASE("coordinator: many without names at once find ids, also more than there are") {
  Band band(32, 20);
  for (unsigned i = 0; i < 100; ++i) band.record(made_name("allreduce", i));
  for (int i = 0; i < 20; ++i) band.decide();
  CHECK(band.ran.size() == 100);
  CHECK(band.id_of.empty());
}

TEST_CASE("coordinator: names that are made are told from others") {
  CHECK(is_made_name(made_name("allreduce", 7)));
  CHECK(is_made_name("broadcast.noname.x"));  // a caller's: no harm
  for (const char* name : {"", ".", "noname", "noname.3", "allreduce.noname", "allreduce.x.noname.3", "allreduce"})
    CHECK_FALSE(is_made_name(name));
}

TEST_CASE("coordinator: a limited number of failed groups is remembered, the last ones") {
  int failed_groups = 0, outdated = 0;
  Coordinator coordinator({.ranks = 2, .ids = 64, .capacity = 32}, [&](Command type, std::string_view) {
    failed_groups += type == Command::fail_group ? 1 : 0;
    outdated += type == Command::outdate ? 1 : 0;
  });
  const auto tensor = [](std::uint64_t group, std::int64_t length) {
    Signature s;
    s.ndim = 1;
    s.dims[0] = length;
    s.group = group;
    s.group_size = group != 0 ? 2 : 0;
    return s;
  };
  // Two tensors of each group; the ranks disagree on the first one, and the second one fails with it.
  const auto fail = [&](std::uint64_t group, bool carried_out) {
    const std::string a = "a" + std::to_string(group), b = "b" + std::to_string(group);
    const std::uint64_t now = coordinator.published();
    coordinator.record(RankSet(0), now, tensor(group, 4), b);
    coordinator.record(RankSet(0), now, tensor(group, 4), a);
    coordinator.record(RankSet(1), now, tensor(group, 5), a);
    if (carried_out) coordinator.executed(coordinator.published());
  };
  std::uint64_t group = 1;
  for (; group <= 100; ++group) fail(group, false);
  CHECK(failed_groups == 100);
  constexpr int last = 100'000 / testing::slower;  // more than are remembered
  for (; group <= last; ++group) fail(group, true);
  CHECK(failed_groups == last);
  CHECK(coordinator.known_failures() < 20'000);
  // A rank's announcement from before a failure ends with it, also now.
  const int before = outdated;
  coordinator.record(RankSet(1), 0, tensor(0, 4), "b" + std::to_string(group - 1));
  coordinator.record(RankSet(1), 0, tensor(group - 1, 4), "new in it");
  CHECK(outdated == before + 1);
  CHECK_FALSE([&] {
    bool waits = false;
    coordinator.incomplete([&](const std::string& name, const RankSet&) { waits |= name.starts_with("new"); });
    return waits;
  }());
}

TEST_CASE("coordinator: a failure that some rank has not carried out is not forgotten") {
  Coordinator coordinator({.ranks = 2, .ids = 64, .capacity = 32}, [](Command, std::string_view) {});
  for (std::uint64_t group = 1; group <= 3000; ++group) {
    Signature s;
    s.ndim = 1;
    s.group = group;
    s.group_size = 2;
    for (const int rank : {0, 1}) {
      s.dims[0] = rank;
      coordinator.record(RankSet(rank), coordinator.published(), s, "a" + std::to_string(group));
    }
  }
  CHECK(coordinator.known_failures() >= 3000);
  bool waits = false;
  Signature late;
  late.group = 1;
  late.group_size = 2;
  coordinator.record(RankSet(1), 0, late, "late");
  coordinator.incomplete([&](const std::string&, const RankSet&) { waits = true; });
  CHECK_FALSE(waits);
}

TEST_CASE("a few tensors on GPUs gather while no thread waits") {
  struct {
    bool waits = false, busy = false;
    bool waited_for() const { return waits; }
    bool works() const { return busy; }
  } gpu;
  std::int64_t now = 1'000'000'000;
  constexpr std::int64_t cycle = 1'000'000;
  std::vector<std::uint32_t> batches;  // tensors of each
  Coordinator coordinator({.ranks = 1, .ids = 64, .capacity = 64, .hold_ns = cycle},
                          [&](Command type, std::string_view body) {
                            ByteReader r(body);
                            r.get<std::uint32_t>();
                            if (type == Command::batch) batches.push_back(r.get<std::uint32_t>());
                          });
  auto submit = [&](int number, bool on_gpu = true) {
    Signature s;
    s.ndim = 1;
    s.dims[0] = 4;
    if (on_gpu) s.device = 0;
    coordinator.record(RankSet::of({0}), coordinator.published(), s, "t" + std::to_string(number));
  };
  auto decide = [&] {
    coordinator.decide(
        coordinator.published(), [&] { return now; }, gpu);
  };
  submit(0);
  decide();
  CHECK(batches == std::vector<std::uint32_t>{1});  // no batch came before it

  SUBCASE("for a cycle after the last batch") {
    submit(1), decide();
    now += cycle / 2;
    submit(2), decide();
    CHECK(batches.size() == 1);
    CHECK(coordinator.holding());
    CHECK(coordinator.behind_gpu_ns(now) == cycle / 2);
    now += cycle / 2;
    decide();
    CHECK(batches == std::vector<std::uint32_t>{1, 2});
    CHECK(coordinator.behind_gpu_ns(now) == 0);
  }
  SUBCASE("for another one while the GPU works") {
    gpu.busy = true;
    now += cycle;
    submit(1), decide();
    CHECK(batches.size() == 1);
    SUBCASE("until it has ended") {
      gpu.busy = false;
      now += cycle / 4;
    }
    SUBCASE("at the most") { now += cycle; }
    decide();
    CHECK(batches == std::vector<std::uint32_t>{1, 1});
  }
  SUBCASE("until somebody waits") {
    gpu.busy = true;
    submit(1), decide();
    gpu.waits = true;
    decide();
    CHECK(batches == std::vector<std::uint32_t>{1, 1});
  }
  SUBCASE("until there are many") {
    for (int number = 1; number < 16; ++number) submit(number), decide();
    CHECK(batches.size() == 1);
    submit(16), decide();
    CHECK(batches == std::vector<std::uint32_t>{1, 16});
  }
  SUBCASE("but not with tensors in host memory") {
    submit(1, false), submit(2), decide();
    CHECK(batches == std::vector<std::uint32_t>{1, 2});
  }
}

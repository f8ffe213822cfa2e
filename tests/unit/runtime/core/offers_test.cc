/// Offers between two nodes: one trip for a small sum, and one sequence of commands whatever else happens.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <random>

#include "core/set/leader.h"
#include "negotiate/coordinator.h"
#include "watched_transport.h"
#include "world_of_threads.h"

using namespace hvd;
using namespace hvd::negotiate;
using namespace hvd::testing;
using transport::Tag;

namespace {

/// The coordinator of two nodes of one rank each, and the types of its commands.
struct Pair {
  std::vector<Command> commands;
  Coordinator coordinator{{.ranks = 2, .ids = 64, .eager_bytes = 1 << 16, .many_nodes = true},
                          [this](Command type, std::string_view) { commands.push_back(type); }};
  /// Makes the name known: the record of both ranks reaches the coordinator, and all ranks confirm its commands.
  void know(const std::string& name, std::uint64_t group = 0, std::uint32_t group_size = 0) {
    Signature s;
    s.ndim = 1;
    s.dims[0] = 4;
    s.group = group;
    s.group_size = group_size;
    coordinator.record(RankSet::range(0, 1), 0, s, name);
  }
  void decide() {
    coordinator.decide(coordinator.published(), [] { return std::int64_t{0}; });
    coordinator.executed(coordinator.published());
  }
  std::optional<std::string> offer(std::vector<std::uint32_t> ids) {
    return coordinator.offer(coordinator.published(), ids);
  }
};

/// A sum of one number; the number of ranks is expected.
void sum(Rank& rank, const char* name, std::int64_t length = 1) {
  std::vector<float> x(static_cast<std::size_t>(length), 1.0f);
  EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, name, {length}, x.data(), x.data())) == HVD_OK);
  EXPECT(x.front() == static_cast<float>(rank.size()) && x.back() == x.front());
}

}  // namespace

TEST_CASE("offers: what the coordinator offers, and what waits for the end of an offer") {
  Pair two;
  for (const char* name : {"a", "b"}) two.know(name);
  for (const char* name : {"c", "d"}) two.know(name, 7, 2);
  two.decide();
  CHECK(two.commands.back() == Command::batch);
  CHECK(two.commands.size() == 5);
  CHECK(!two.offer({}));
  CHECK(!two.offer({63}));    // has no name
  CHECK(!two.offer({0, 2}));  // half of a group
  two.coordinator.ready(1, true);
  CHECK(!two.offer({0}));  // the other tensor can run now
  two.decide();
  CHECK(
      !two.coordinator.offer(two.coordinator.published() - 1, std::vector<std::uint32_t>{0}));  // the batch still runs
  const auto body = two.offer({0, 2, 3});
  REQUIRE(body);
  CHECK(!two.offer({1}));  // one at a time
  const std::size_t before = two.commands.size();
  TunedSettings settings;
  settings.fusion_bytes = 1 << 20;
  two.coordinator.tune(settings);
  CHECK(two.coordinator.wants_end_of_offer());
  two.coordinator.refuse_crossed({"allreduce.a", "broadcast.a"});
  CHECK(two.commands.size() == before);
  two.coordinator.end_offer(true);
  CHECK(std::vector<Command>(two.commands.begin() + static_cast<std::ptrdiff_t>(before), two.commands.end()) ==
        std::vector<Command>{Command::batch, Command::tune});
  CHECK(!two.coordinator.wants_end_of_offer());
  // A declined offer leaves nothing behind: the same tensor runs the usual way.
  REQUIRE(two.offer({0}));
  two.coordinator.end_offer(false);
  CHECK(two.commands.size() == before + 2);
  two.coordinator.ready(0, true);
  two.decide();
  CHECK(two.commands.size() == before + 3);
  // The end of a rank ends all operations, so it does not wait.
  REQUIRE(two.offer({0}));
  two.coordinator.gone(1, HVD_PEER_LOST, "rank 1 left");
  CHECK(two.commands.back() == Command::gone);
  CHECK(two.coordinator.offered().empty());
}

TEST_CASE("offers: known small sums between two nodes send no results, and larger worlds offer nothing") {
  for (const Split s : {Split{2, 1}, Split{4, 2}, Split{3, 1}}) {
    std::atomic<int> offers{0}, results{0}, withdrawn{0};
    auto watch = [&](Tag tag, std::string_view body) {
      if (tag != Tag::down || body.empty()) return;
      offers += body[0] == static_cast<char>(core::offer_entry);
      withdrawn += body[0] == static_cast<char>(core::withdraw_entry);
      results += body[0] == static_cast<char>(core::result_entry);
    };
    const auto world = transport::LoopbackWorld::make(s.size);
    world->delay(7, 100'000);
    std::vector<std::thread> threads;
    std::vector<std::string> failures(static_cast<std::size_t>(s.size));
    for (int r = 0; r < s.size; ++r)
      threads.emplace_back([&, r] {
        try {
          core::Config config;
          config.set("HVD_RANKS_PER_NODE", s.per_node);
          Rank rank(std::make_unique<WatchedTransport>(world->open(r), watch), r, config);
          for (int round = 0; round < 100; ++round) sum(rank, "a", 1 + (round / 50) * 1000);
        } catch (const std::exception& e) { failures[static_cast<std::size_t>(r)] = e.what(); }
      });
    for (std::thread& t : threads) t.join();
    for (const std::string& f : failures) CHECK(f == "");
    const int nodes = (s.size + s.per_node - 1) / s.per_node;
    CAPTURE(s.size);
    CHECK(offers + results >= 95);
    if (nodes == 2) CHECK(offers > 0);  // in the other rounds the other node was earlier, on a busy machine in most
    if (nodes > 2) CHECK(offers == 0);
    CHECK(withdrawn <= 2);  // the change of the shape
  }
}

TEST_CASE("offers: a tensor of a larger offer may be all that the other node waits for") {
  run_world(
      2, 1,
      [](Rank& rank) {
        for (int round = 0; round < 60 / slower; ++round) {
          float a = 1, b = 2;
          const hvd_request first = Rank::request(HVD_ALLREDUCE, "a", {1}, &a, &a);
          const hvd_request second = Rank::request(HVD_ALLREDUCE, "b", {1}, &b, &b);
          if (rank.rank() == round % 2) {
            for (core::Operation* op : rank.submit_many({first, second})) EXPECT(rank.finish(*op) == HVD_OK);
          } else {
            EXPECT(rank.run(round % 3 ? first : second) == HVD_OK);
            EXPECT(rank.run(round % 3 ? second : first) == HVD_OK);
          }
          EXPECT(a == 2 && b == 4);
        }
      },
      {}, 100'000);
}

TEST_CASE("offers: small and large sums in random orders, other shapes, mismatches, then a join") {
  for (const Split s : {Split{2, 1}, Split{4, 2}, Split{3, 2}})
    run_world(
        s.size, s.per_node,
        [](Rank& rank) {
          std::mt19937 own(static_cast<unsigned>(rank.rank()) + 31), common(5);
          const int n = rank.size();
          for (int round = 0; round < 120 / slower; ++round) {
            const std::size_t count = 1 + common() % 6;
            const std::size_t odd = common() % 10 ? count : common() % count;  // this one has no common shape
            const bool other_shape = common() % 6 == 0;
            std::vector<std::vector<float>> data;
            std::vector<std::string> names;
            for (std::size_t i = 0; i < count; ++i) {
              std::size_t length = i == 5 ? 40'000 : 1 + i * 100 + (other_shape ? 3 : 0);
              if (i == odd && rank.rank() == n - 1) ++length;
              data.emplace_back(length, static_cast<float>(rank.rank() + 1));
              names.push_back("t" + std::to_string(i));
            }
            std::vector<std::size_t> order(count);
            for (std::size_t i = 0; i < count; ++i) order[i] = i;
            if (common() % 2) std::shuffle(order.begin(), order.end(), own);
            std::vector<core::Operation*> ops(count);
            for (const std::size_t i : order) {
              if (own() % 6 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 200));
              ops[i] = &rank.submit(Rank::request(HVD_ALLREDUCE, names[i].c_str(),
                                                  {static_cast<std::int64_t>(data[i].size())}, data[i].data(),
                                                  data[i].data()));
            }
            for (std::size_t i = 0; i < count; ++i) {
              EXPECT(rank.finish(*ops[i]) == (i == odd ? HVD_MISMATCH : HVD_OK));
              if (i != odd) EXPECT(data[i].front() == static_cast<float>(n * (n + 1) / 2));
            }
          }
          for (int step = 0; step < 3 + 4 * rank.rank(); ++step) {
            float x = 1;
            EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "t0", {1}, &x, &x)) == HVD_OK);
          }
          core::Operation& joined = rank.submit(Rank::request(HVD_JOIN, nullptr, {}, nullptr, nullptr));
          EXPECT(rank.finish(joined) == HVD_OK);
          for (int round = 0; round < 20; ++round) sum(rank, "t1");
        },
        {}, 150'000);
}

TEST_CASE("offers: a rank that leaves while an offer is open ends the waits of all") {
  for (const int leaver : {0, 1, 2, 3})
    for (int round = 0; round < 5; ++round)
      run_world(
          4, 2,
          [&](Rank& rank) {
            for (int i = 0; i < 4; ++i) sum(rank, "a");
            if (rank.rank() == leaver) return rank.shutdown();
            float x = 1;
            std::string text;
            EXPECT(rank.try_run(Rank::request(HVD_ALLREDUCE, "a", {1}, &x, &x), &text, 60) == HVD_PEER_LOST);
          },
          {}, 100'000);
}

TEST_CASE("offers: two kinds under one name are refused although one of them is offered") {
  core::Config config;
  config.set("HOROVOD_STALL_CHECK_TIME_SECONDS", 1);
  run_world(
      2, 1,
      [](Rank& rank) {
        for (int i = 0; i < 4; ++i) sum(rank, "a");
        float x = 1;
        std::string text;
        hvd_request q = Rank::request(rank.rank() == 0 ? HVD_ALLREDUCE : HVD_BROADCAST, "a", {1}, &x, &x);
        EXPECT(rank.try_run(q, &text, 60) == HVD_MISMATCH);
        for (int i = 0; i < 4; ++i) sum(rank, "a");
      },
      config);
}

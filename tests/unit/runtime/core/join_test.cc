/// Join with ranks as threads: a rank without data takes part in the others' operations.
#include <algorithm>
#include <random>

#include "world_of_threads.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

const std::vector<Split> join_splits = worlds({{1, 0}, {2, 0}, {3, 0}, {4, 2}, {3, 1}, {5, 2}, {5, 1}});

/// Joins and returns the rank that came last.
int join(Rank& rank, int set = 0) {
  hvd_request q = Rank::request(HVD_JOIN, nullptr, {}, nullptr, nullptr);
  q.set = set;
  core::Operation& op = rank.submit(q);
  EXPECT(rank.engine().wait(op, 120));
  EXPECT(op.status == HVD_OK);
  const int last = op.last_rank;
  rank.engine().operations().release(op);
  return last;
}

}  // namespace

TEST_CASE("join: who has no more data stands in with zeros, again and again") {
  for (const Split& s : join_splits)
    run_world(s.size, s.per_node, [](Rank& rank) {
      const int n = rank.size();
      for (int epoch = 0; epoch < (slower > 1 ? 2 : 6); ++epoch) {
        // Rank r has 3 (r + epoch) mod n steps: one rank has none.
        auto steps_of = [&](int r) { return 3 * ((r + epoch) % n); };
        for (int step = 0; step < steps_of(rank.rank()); ++step) {
          int here = 0;
          for (int r = 0; r < n; ++r) here += steps_of(r) > step;
          for (std::int64_t count : {1, 3000, 100000}) {
            std::vector<float> x(static_cast<std::size_t>(count), 1);
            const std::string name = "x" + std::to_string(count);
            const hvd_reduce op = step % 2 ? HVD_AVERAGE : HVD_SUM;
            EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, name.c_str(), {count}, x.data(), x.data(), HVD_F32, op)) ==
                   HVD_OK);
            EXPECT(x.back() ==
                   (op == HVD_SUM ? static_cast<float>(here) : static_cast<float>(here) / static_cast<float>(n)));
          }
          const float mine[2] = {static_cast<float>(rank.rank()), 7};
          core::Operation& g = rank.submit(Rank::request(HVD_ALLGATHER, "g", {2}, mine, nullptr));
          EXPECT(rank.engine().wait(g, 120) && g.status == HVD_OK);
          EXPECT(g.result_shape.front() == 2 * here);
          rank.engine().operations().release(g);
          EXPECT(rank.run(Rank::request(HVD_BARRIER, nullptr, {}, nullptr, nullptr)) == HVD_OK);
        }
        const int last = join(rank);
        EXPECT(last >= 0 && last < n);
        float x = static_cast<float>(last), all = 0;  // all ranks agree on the last rank, and cached names still work
        for (int i = 0; i < 4; ++i) {
          EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "after", {1}, &x, &all, HVD_F32, HVD_MAX)) == HVD_OK);
          EXPECT(all == x);
        }
      }
    });
}

TEST_CASE("join: broadcast, alltoall, reducescatter") {
  for (const Split& s : {Split{3, 0}, Split{3, 1}, Split{4, 2}})
    run_world(s.size, s.per_node, [](Rank& rank) {
      const int n = rank.size();
      if (rank.rank() != 1) {
        for (int round = 0; round < 3; ++round) {
          std::vector<float> x(50000, static_cast<float>(rank.rank()));
          EXPECT(rank.run(Rank::request(HVD_BROADCAST, "b", {50000}, x.data(), x.data())) == HVD_OK);
          EXPECT(x.back() == 0);
          std::string text;
          hvd_request q = Rank::request(HVD_BROADCAST, "bad", {3}, x.data(), x.data());
          q.root = 1;
          EXPECT(rank.run(q, &text) == HVD_MISMATCH);
          EXPECT(text.find("rank 1 joined") != std::string::npos);
          for (hvd_reduce op : {HVD_MIN, HVD_MAX, HVD_PRODUCT})
            EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "m", {3}, x.data(), x.data(), HVD_F32, op)) == HVD_MISMATCH);
          core::Operation& r = rank.submit(Rank::request(HVD_REDUCESCATTER, "r", {2 * n}, x.data(), nullptr));
          EXPECT(rank.engine().wait(r, 120) && r.status == HVD_OK);
          rank.engine().operations().release(r);
          core::Operation& a = rank.submit(Rank::request(HVD_ALLTOALL, "a", {2 * n}, x.data(), nullptr));
          EXPECT(rank.engine().wait(a, 120) && a.status == HVD_OK);
          EXPECT(a.result_shape.front() == 2 * (n - 1));
          rank.engine().operations().release(a);
          float y[2] = {1, 1};
          std::vector<hvd_request> group = {Rank::request(HVD_ALLREDUCE, "g0", {1}, y, y),
                                            Rank::request(HVD_ALLREDUCE, "g1", {1}, y + 1, y + 1)};
          for (core::Operation* op : rank.submit_group(group)) EXPECT(rank.finish(*op) == HVD_OK);
          EXPECT(y[0] == static_cast<float>(n - 1));
          group[1].reduce = HVD_MAX;
          for (core::Operation* op : rank.submit_group(group)) EXPECT(rank.finish(*op) == HVD_MISMATCH);
        }
      }
      join(rank);
    });
}

TEST_CASE("join: operations in progress go on, also when all ranks join") {
  for (const Split& s : {Split{2, 0}, Split{3, 0}, Split{3, 1}, Split{4, 2}})
    run_world(s.size, s.per_node, [](Rank& rank) {
      std::mt19937 random(static_cast<unsigned>(rank.rank()) + 3);
      for (int round = 0; round < 30; ++round) {
        std::vector<std::vector<float>> data;
        std::vector<core::Operation*> ops;
        std::vector<std::string> names;
        // Each rank has submitted some of eight names when it joins, known and unknown ones.
        for (int i = 0; i < 8; ++i)
          if (random() % 2) names.push_back("n" + std::to_string(i + (round % 3) * 4));
        std::shuffle(names.begin(), names.end(), random);
        for (const std::string& name : names) {
          data.emplace_back(10, 1.0f);
          ops.push_back(
              &rank.submit(Rank::request(HVD_ALLREDUCE, name.c_str(), {10}, data.back().data(), data.back().data())));
        }
        join(rank);
        for (std::size_t i = 0; i < ops.size(); ++i) {
          EXPECT(ops[i]->done());
          EXPECT(rank.finish(*ops[i]) == HVD_OK);
          EXPECT(data[i].back() >= 1 && data[i].back() <= static_cast<float>(rank.size()));
        }
        for (int i = 0; i < 3; ++i) {
          float x = 1;
          EXPECT(rank.sum(0, "n1", &x) == HVD_OK);
        }
      }
    });
}

TEST_CASE("join: in a process set, while the others go on; nothing may follow before it ends") {
  for (const Split& s : {Split{3, 0}, Split{3, 1}})
    run_world(s.size, s.per_node, [](Rank& rank) {
      const int set = rank.engine().add_set({0, 2});
      for (int round = 0; round < 5; ++round) {
        if (rank.rank() == 0) {
          hvd_request q = Rank::request(HVD_JOIN, nullptr, {}, nullptr, nullptr);
          q.set = set;
          core::Operation& op = rank.submit(q);
          float x = 1;
          bool refused = false;
          try {
            rank.sum(set, "x", &x);
          } catch (const Error& e) { refused = e.code == Code::usage; }
          EXPECT(refused);
          EXPECT(rank.sum(0, "all", &x) == HVD_OK && x == 3);
          EXPECT(rank.engine().wait(op, 120) && op.status == HVD_OK && op.last_rank == 2);
          rank.engine().operations().release(op);
        } else {
          float x = 1;
          EXPECT(rank.sum(0, "all", &x) == HVD_OK && x == 3);
          if (rank.rank() == 2) {
            x = 1;
            EXPECT(rank.sum(set, "x", &x) == HVD_OK && x == 1);
            EXPECT(join(rank, set) == 2);
          }
        }
      }
      std::string text;
      if (rank.rank() == 1) {
        join(rank);
      } else {
        bool refused = false;
        try {
          rank.engine().add_set({0});
        } catch (const Error& e) { refused = e.code == Code::mismatch; }
        EXPECT(refused);
        join(rank);
      }
    });
}

TEST_CASE("join: thousands of names, before and after, while the cache grows") {
  for (const Split& s : worlds({{3, 0}, {3, 1}}))
    run_world(s.size, s.per_node, [](Rank& rank) {
      constexpr std::size_t names = 3000;
      std::vector<std::string> text;
      for (std::size_t i = 0; i < names; ++i) text.push_back("many" + std::to_string(i));
      std::vector<float> data(names);
      // The names come in pieces, so that most of them are idle when a new one needs an id.
      auto step = [&](std::size_t count, float expected) {
        for (std::size_t first = 0; first < count; first += 500) {
          std::vector<hvd_request> qs;
          for (std::size_t i = first; i < first + 500; ++i) {
            const std::size_t n = (i * 7 + static_cast<std::size_t>(rank.rank())) % 500 + first;
            data[n] = static_cast<float>(n);
            qs.push_back(Rank::request(HVD_ALLREDUCE, text[n].c_str(), {1}, &data[n], &data[n]));
          }
          for (core::Operation* op : rank.submit_many(qs)) EXPECT(rank.finish(*op) == HVD_OK);
        }
        for (std::size_t n = 0; n < count; ++n) EXPECT(data[n] == expected * static_cast<float>(n));
      };
      for (int round = 0; round < 4; ++round) step(names, 3);
      if (rank.rank() != 0) step(1000, 2);
      join(rank);
      for (int round = 0; round < 3; ++round) step(names, 3);
    });
}

TEST_CASE("join: a rank that leaves ends it") {
  for (const Split& s : {Split{3, 0}, Split{3, 1}})
    run_world(s.size, s.per_node, [](Rank& rank) {
      if (rank.rank() == 2) return;
      std::string text;
      EXPECT(rank.try_run(Rank::request(HVD_JOIN, nullptr, {}, nullptr, nullptr), &text, 120) == HVD_PEER_LOST);
    });
}

/// Process sets with ranks as threads: they overlap, come and go, and never block each other.
#include <dirent.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "world_of_threads.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

const std::vector<Split> sets_splits = worlds({{3, 0}, {3, 1}, {3, 2}, {5, 2}, {4, 0}});

bool member(const std::vector<int>& ranks, int rank) { return std::count(ranks.begin(), ranks.end(), rank) > 0; }

/// hvd_status of a call that may throw; *text gets the error.
template <class F>
int status_of(F&& f, std::string* text = nullptr) {
  try {
    f();
    return HVD_OK;
  } catch (const Error& e) {
    if (text) *text = e.what();
    return static_cast<int>(e.code);
  }
}

int count_entries(const char* folder) {
  int n = 0;
  if (DIR* d = opendir(folder)) {
    while (readdir(d)) ++n;
    closedir(d);
  }
  return n;
}

long resident_kib() {
  std::ifstream statm("/proc/self/statm");
  long total = 0, resident = 0;
  statm >> total >> resident;
  return resident * 4;
}

}  // namespace

TEST_CASE("sets: every operation in a set, by its own numbering") {
  for (const Split& s : sets_splits)
    run_world(s.size, s.per_node, [](Rank& rank) {
      const std::vector<int> ranks = {rank.size() - 1, 0};  // rank 0 of the set is the last of the world
      const int set = rank.engine().add_set(ranks);
      EXPECT(set == 1);
      const auto known = rank.engine().known(set);
      EXPECT(known->ranks == ranks);
      EXPECT(known->rank == (rank.rank() == ranks[0] ? 0 : rank.rank() == 0 ? 1 : -1));
      std::string text;
      if (known->rank < 0) {
        float x = 1;
        hvd_request q = Rank::request(HVD_ALLREDUCE, "x", {1}, &x, &x);
        q.set = set;
        EXPECT(status_of([&] { rank.submit(q); }) == HVD_USAGE);
      } else {
        for (int round = 0; round < 3; ++round) {
          for (std::int64_t count : {1, 5000, 300000}) {
            std::vector<float> x(static_cast<std::size_t>(count), static_cast<float>(rank.rank() + 1));
            const std::string name = "x" + std::to_string(count);  // outlives the request
            hvd_request q =
                Rank::request(HVD_ALLREDUCE, name.c_str(), {count}, x.data(), x.data(), HVD_F32, HVD_AVERAGE);
            q.set = set;
            EXPECT(rank.run(q) == HVD_OK);
            EXPECT(x.back() == static_cast<float>(rank.size() + 1) / 2);
            q = Rank::request(HVD_BROADCAST, "b", {count}, x.data(), x.data());
            std::fill(x.begin(), x.end(), static_cast<float>(rank.rank()));
            q.set = set, q.root = 0;
            EXPECT(rank.run(q) == HVD_OK);
            EXPECT(x.back() == static_cast<float>(rank.size() - 1));
          }
          const float mine = static_cast<float>(rank.rank());
          hvd_request q = Rank::request(HVD_ALLGATHER, "g", {1}, &mine, nullptr);
          q.set = set;
          core::Operation& op = rank.submit(q);
          EXPECT(rank.engine().wait(op, 120) && op.status == HVD_OK);
          EXPECT(static_cast<const float*>(op.result)[0] == static_cast<float>(rank.size() - 1));
          EXPECT(static_cast<const float*>(op.result)[1] == 0.0f);
          rank.engine().operations().release(op);
        }
        float data[8] = {};
        hvd_request q = Rank::request(HVD_ALLREDUCE, "bad", {rank.rank() == 0 ? 4 : 8}, data, data);
        q.set = set;
        EXPECT(rank.run(q, &text) == HVD_MISMATCH);
        EXPECT(text.find("[4] on rank 0") != std::string::npos);
        EXPECT(text.find("[8] on rank " + std::to_string(rank.size() - 1)) != std::string::npos);
        q = Rank::request(HVD_BROADCAST, "b", {1}, data, data);
        q.set = set, q.root = 2;
        EXPECT(status_of([&] { rank.submit(q); }) == HVD_USAGE);
      }
      float x = 1;  // the same name in another set
      EXPECT(rank.sum(HVD_GLOBAL_SET, "x1", &x) == HVD_OK);
      EXPECT(x == static_cast<float>(rank.size()));
      rank.engine().remove_set(set);
      EXPECT(status_of([&] { rank.engine().known(set); }) == HVD_USAGE);
    });
}

TEST_CASE("sets: wrong arguments are refused everywhere, and harm nothing") {
  for (const Split& s : {Split{3, 0}, Split{4, 2}})
    run_world(s.size, s.per_node, [](Rank& rank) {
      core::Engine& e = rank.engine();
      std::string text;
      EXPECT(status_of([&] { e.add_set({}); }) == HVD_USAGE);
      EXPECT(status_of([&] { e.add_set({0, rank.size()}); }) == HVD_USAGE);
      EXPECT(status_of([&] { e.add_set({-1}); }) == HVD_USAGE);
      EXPECT(status_of([&] { e.add_set({1, 1}); }, &text) == HVD_USAGE);
      EXPECT(text.find("twice") != std::string::npos);
      std::vector<int> all;
      for (int r = 0; r < rank.size(); ++r) all.push_back(r);
      EXPECT(status_of([&] { e.add_set(all); }, &text) == HVD_USAGE);
      EXPECT(text.find("process set 0") != std::string::npos);
      const int set = e.add_set({0, 2});
      EXPECT(status_of([&] { e.add_set({0, 2}); }) == HVD_USAGE);
      EXPECT(status_of([&] { e.add_set({2, 0}); }, &text) == HVD_USAGE);
      EXPECT(text.find("already") != std::string::npos);
      EXPECT(status_of([&] { e.remove_set(0); }) == HVD_USAGE);
      EXPECT(status_of([&] { e.remove_set(7); }) == HVD_USAGE);
      e.remove_set(set);
      EXPECT(status_of([&] { e.remove_set(set); }) == HVD_USAGE);
      const int again = e.add_set({0, 2});
      EXPECT(again == set + 1);
      float x = 1;
      if (member({0, 2}, rank.rank())) {
        EXPECT(rank.sum(again, "x", &x) == HVD_OK);
        EXPECT(x == 2);
      }
    });
}

TEST_CASE("sets: overlapping ones in random orders") {
  for (const Split& s : {Split{3, 0}, Split{3, 1}, Split{3, 2}})
    run_world(s.size, s.per_node, [](Rank& rank) {
      const std::vector<std::vector<int>> members = {{0, 1, 2}, {0, 1}, {1, 2}, {0, 2}};
      std::vector<int> ids = {0};
      for (std::size_t i = 1; i < members.size(); ++i) ids.push_back(rank.engine().add_set(members[i]));
      std::mt19937 random(static_cast<unsigned>(rank.rank()) + 7);
      for (int round = 0; round < 300 / slower; ++round) {
        std::vector<std::size_t> order;
        for (std::size_t i = 0; i < members.size(); ++i)
          if (member(members[i], rank.rank())) order.push_back(i);
        std::shuffle(order.begin(), order.end(), random);
        // Small and large, one name in all sets, waited for in another random order.
        const std::size_t count = round % 10 == 9 ? 100000 : 1 + static_cast<std::size_t>(round % 7);
        std::vector<std::vector<float>> data(members.size(), std::vector<float>(count, 1.0f));
        std::vector<std::pair<std::size_t, core::Operation*>> ops;
        for (std::size_t i : order) {
          hvd_request q = Rank::request(HVD_ALLREDUCE, count > 10 ? "large" : "small",
                                        {static_cast<std::int64_t>(count)}, data[i].data(), data[i].data());
          q.set = ids[i];
          ops.emplace_back(i, &rank.submit(q));
        }
        std::shuffle(ops.begin(), ops.end(), random);
        for (auto& [i, op] : ops) {
          EXPECT(rank.finish(*op) == HVD_OK);
          EXPECT(data[i].back() == static_cast<float>(members[i].size()));
        }
      }
    });
}

TEST_CASE("sets: one that waits holds up no other") {
  for (const Split& s : {Split{3, 0}, Split{3, 1}, Split{3, 2}})
    run_world(s.size, s.per_node, [](Rank& rank) {
      const int a = rank.engine().add_set({0, 1}), b = rank.engine().add_set({1, 2});
      float waits = 1;
      core::Operation* op = nullptr;
      if (rank.rank() == 1) {  // rank 0 takes part in it at the very end
        hvd_request q = Rank::request(HVD_ALLREDUCE, "late", {1}, &waits, &waits);
        q.set = a;
        op = &rank.submit(q);
      }
      for (int i = 0; i < 200 / slower; ++i) {
        float x = 1, y = 1, z = 1;
        EXPECT(rank.sum(0, "x", &x) == HVD_OK);
        EXPECT(x == 3);
        if (rank.rank() < 2) EXPECT(rank.sum(a, "y", &y) == HVD_OK && y == 2);
        if (rank.rank() > 0) EXPECT(rank.sum(b, "z", &z) == HVD_OK && z == 2);
      }
      if (op) EXPECT(!op->done());
      float sync = 1;
      EXPECT(rank.sum(0, "sync", &sync) == HVD_OK);
      if (rank.rank() == 0) EXPECT(rank.sum(a, "late", &waits) == HVD_OK);
      if (op) EXPECT(rank.finish(*op) == HVD_OK);
    });
}

TEST_CASE("sets: from many threads, each with its own, added in any order") {
  run_world(4, 2, [](Rank& rank) {
    const std::vector<std::vector<int>> members = {{0, 1}, {1, 2, 3}, {0, 3}, {2, 3}, {0, 1, 2}};
    std::atomic<int> bad{0};
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < members.size(); ++t)
      threads.emplace_back([&, t] {
        for (int round = 0; round < 5; ++round) {
          const int set = rank.engine().add_set(members[t]);
          for (int i = 0; i < 10 && member(members[t], rank.rank()); ++i) {
            float x = 1;
            bad += rank.sum(set, "x", &x) != HVD_OK || x != static_cast<float>(members[t].size());
          }
          rank.engine().remove_set(set);
        }
      });
    for (auto& t : threads) t.join();
    EXPECT(bad == 0);
  });
}

TEST_CASE("sets: removed while an operation is under way, it ends with an error") {
  for (const Split& s : {Split{3, 0}, Split{3, 1}})
    run_world(s.size, s.per_node, [](Rank& rank) {
      for (int round = 0; round < 10; ++round) {
        const int set = rank.engine().add_set({0, 2});
        float x = 1;
        core::Operation* op = nullptr;
        if (rank.rank() == 2) {
          hvd_request q = Rank::request(HVD_ALLREDUCE, "alone", {1}, &x, &x);
          q.set = set;
          op = &rank.submit(q);
        }
        rank.engine().remove_set(set);
        std::string text;
        if (op) EXPECT(rank.finish(*op, &text) == HVD_USAGE && text.find("removed") != std::string::npos);
        float y = 1;
        EXPECT(rank.sum(0, "y", &y) == HVD_OK && y == 3);
      }
    });
}

TEST_CASE("sets: added and removed 200 times, nothing is left") {
  for (int per_node : {0, 1}) {
    int files = 0;
    long memory = 0;
    run_world(3, per_node, [&](Rank& rank) {
      for (int round = 0; round < 220 / slower; ++round) {
        if (round == 20 && rank.rank() == 0) files = count_entries("/proc/self/fd"), memory = resident_kib();
        const int set = rank.engine().add_set(round % 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 1});
        float x = 1;
        if (member(rank.engine().known(set)->ranks, rank.rank())) {
          EXPECT(rank.sum(set, "x", &x) == HVD_OK);
          EXPECT(x == 2);
        }
        rank.engine().remove_set(set);
      }
      float x = 1;
      EXPECT(rank.sum(0, "end", &x) == HVD_OK);
      if (rank.rank() != 0) return;
      EXPECT(count_entries("/proc/self/fd") <= files);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
      // A set has five MiB here: if they were kept, the sum would be a GiB. Less than half of that is malloc's own
      // arenas.
      EXPECT(resident_kib() < memory + (600 << 10));
#endif
    });
  }
}

TEST_CASE("sets: a rank that leaves ends the waits of its sets, and of no other") {
  for (const Split& s : {Split{3, 0}, Split{3, 1}})
    run_world(s.size, s.per_node, [](Rank& rank) {
      const int with = rank.engine().add_set({0, 2}), without = rank.engine().add_set({0, 1});
      float x = 1;
      EXPECT(rank.sum(0, "x", &x) == HVD_OK);
      if (rank.rank() == 2) return;
      std::string text;
      if (rank.rank() == 0) {
        hvd_request q = Rank::request(HVD_ALLREDUCE, "y", {1}, &x, &x);
        q.set = with;
        EXPECT(rank.try_run(q, &text, 120) == HVD_PEER_LOST);
        EXPECT(text.find("rank 2") != std::string::npos);
      }
      for (int i = 0; i < 20; ++i) {
        x = 1;
        EXPECT(rank.sum(without, "z", &x) == HVD_OK && x == 2);
      }
      EXPECT(rank.try_run(Rank::request(HVD_ALLREDUCE, "x", {1}, &x, &x), &text, 120) == HVD_PEER_LOST);
    });
}

/// The engine with ranks as threads: all operations, dtypes, shapes; one node and several.
#include <cstring>
#include <random>

#include "world_of_threads.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

const std::vector<Split> engine_splits = worlds({{1, 0}, {2, 0}, {3, 0}, {4, 0}, {2, 1}, {4, 2}, {3, 1}, {5, 2}});

template <class T>
void allreduce_ints(hvd_dtype dtype) {
  for (const Split& s : engine_splits)
    run_world(s.size, s.per_node, [&](Rank& rank) {
      const int n = rank.size();
      for (std::int64_t count : {0, 1, 7, 1000, 5000, slower > 1 && dtype != HVD_F32 ? 6000 : 50000})
        for (int round = 0; round < (slower > 1 && count < 1000 && dtype != HVD_F32 ? 0 : 2); ++round)
          for (hvd_reduce op : {HVD_SUM, HVD_AVERAGE, HVD_MIN, HVD_MAX, HVD_PRODUCT}) {
            std::vector<T> in(static_cast<std::size_t>(count)), out(in.size());
            for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<T>(rank.rank() + static_cast<int>(i % 3));
            const std::string name = "t." + std::to_string(op) + "." + std::to_string(count);
            EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, name.c_str(), {count}, in.data(), out.data(), dtype, op)) ==
                   HVD_OK);
            for (std::size_t i = 0; i < in.size(); ++i) {
              long sum = 0, product = 1;
              for (int r = 0; r < n; ++r) sum += r + static_cast<int>(i % 3), product *= r + static_cast<int>(i % 3);
              const long first = static_cast<long>(i % 3);
              const double expected =
                  op == HVD_SUM ? static_cast<double>(sum)
                  : op == HVD_AVERAGE
                      ? (std::is_integral_v<T> ? static_cast<double>(sum / n)
                                               : static_cast<double>(static_cast<T>(sum) / static_cast<T>(n)))
                  : op == HVD_MIN ? static_cast<double>(first)
                  : op == HVD_MAX ? static_cast<double>(first + n - 1)
                                  : static_cast<double>(static_cast<T>(product));
              EXPECT(static_cast<double>(out[i]) == expected);
            }
          }
    });
}

}  // namespace

TEST_CASE("engine: allreduce of every wide dtype and reduction, record and bit, all splits") {
  SUBCASE("float32") { allreduce_ints<float>(HVD_F32); }
  SUBCASE("float64") { allreduce_ints<double>(HVD_F64); }
  SUBCASE("int32") { allreduce_ints<std::int32_t>(HVD_I32); }
  SUBCASE("int64") { allreduce_ints<std::int64_t>(HVD_I64); }
  SUBCASE("int16") { allreduce_ints<std::int16_t>(HVD_I16); }
}

TEST_CASE("engine: more ranks of one host than there is room for are refused") {
  memory::Geometry geometry;
  geometry.ranks = memory::most_ranks;
  CHECK_NOTHROW(memory::Node(geometry, 0));
  ++geometry.ranks;
  CHECK_THROWS_WITH_AS(memory::Node(geometry, 0), doctest::Contains("513 ranks on one host"), Error);
}

TEST_CASE("engine: scale factors, scalars and shapes") {
  for (const Split& s : engine_splits)
    run_world(s.size, s.per_node, [](Rank& rank) {
      const int n = rank.size();
      float in = 3, out = 0;
      hvd_request q = Rank::request(HVD_ALLREDUCE, "scalar", {}, &in, &out);
      q.prescale = 0.5;
      q.postscale = 4;
      EXPECT(rank.run(q) == HVD_OK);
      EXPECT(out == 6.0f * static_cast<float>(n));
      std::int32_t i = 7, j = 0;
      q = Rank::request(HVD_ALLREDUCE, "integer", {1, 1, 1}, &i, &j, HVD_I32, HVD_AVERAGE);
      q.prescale = 1;
      q.postscale = 0.5;
      EXPECT(rank.run(q) == HVD_OK);
      EXPECT(j == 3);
      EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "empty", {4, 0, 3}, nullptr, nullptr)) == HVD_OK);
    });
}

TEST_CASE("engine: an average does not wrap on its way, on one node or several") {
  for (const Split& s : {Split{2, 0}, Split{4, 0}, Split{2, 1}, Split{4, 2}, Split{3, 1}, Split{5, 2}})
    run_world(s.size, s.per_node, [](Rank& rank) {
      std::uint8_t bytes[3] = {250, 200, 7}, all[2] = {1, rank.rank() != 0};
      EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "u8", {3}, bytes, bytes, HVD_U8, HVD_AVERAGE)) == HVD_OK);
      EXPECT(bytes[0] == 250 && bytes[1] == 200 && bytes[2] == 7);
      EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "bool", {2}, all, all, HVD_BOOL, HVD_AVERAGE)) == HVD_OK);
      EXPECT(all[0] == 1 && all[1] == 0);  // truncated: true only where it is so on all ranks
      std::int32_t large = 2000000000;
      EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "i32", {}, &large, &large, HVD_I32, HVD_AVERAGE)) == HVD_OK);
      EXPECT(large == 2000000000);
      // 49152 in float16: the sum of two is infinite there. The average may be off by two roundings.
      std::uint16_t half = 0x7a00;
      EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "f16", {}, &half, &half, HVD_F16, HVD_AVERAGE)) == HVD_OK);
      EXPECT(half >= 0x79fe && half <= 0x7a02);
    });
}

TEST_CASE("engine: fused or alone, the bits are the same") {
  for (const Split& s : {Split{2, 0}, Split{3, 0}, Split{4, 2}, Split{3, 1}})
    run_world(s.size, s.per_node, [](Rank& rank) {
      std::mt19937 random(static_cast<unsigned>(rank.rank()) + 1);
      std::normal_distribution<float> normal;
      constexpr int count = 40;
      std::vector<std::vector<float>> in, alone;
      for (int i = 0; i < count; ++i) {
        in.emplace_back(static_cast<std::size_t>(1 + i * i * 20));
        for (float& x : in.back()) x = normal(random);
        alone.push_back(in.back());
      }
      auto name = [](int i) { return "t" + std::to_string(i); };
      auto request = [&](int i, std::vector<float>& out) {
        static thread_local std::vector<std::string> names(count);
        names[static_cast<std::size_t>(i)] = name(i);
        return Rank::request(HVD_ALLREDUCE, names[static_cast<std::size_t>(i)].c_str(),
                             {static_cast<std::int64_t>(out.size())}, in[static_cast<std::size_t>(i)].data(),
                             out.data(), HVD_F32, HVD_AVERAGE);
      };
      for (int i = 0; i < count; ++i) EXPECT(rank.run(request(i, alone[static_cast<std::size_t>(i)])) == HVD_OK);
      for (int round = 0; round < 10; ++round) {
        std::vector<std::vector<float>> out = in;
        std::vector<core::Operation*> ops(count);
        std::vector<int> order(count);
        for (int i = 0; i < count; ++i) order[static_cast<std::size_t>(i)] = i;
        std::shuffle(order.begin(), order.end(), random);
        for (int i : order)
          ops[static_cast<std::size_t>(i)] = &rank.submit(request(i, out[static_cast<std::size_t>(i)]));
        for (core::Operation* op : ops) EXPECT(rank.finish(*op) == HVD_OK);
        for (int i = 0; i < count; ++i)
          EXPECT(std::memcmp(out[static_cast<std::size_t>(i)].data(), alone[static_cast<std::size_t>(i)].data(),
                             out[static_cast<std::size_t>(i)].size() * sizeof(float)) == 0);
      }
    });
}

TEST_CASE("engine: broadcast and allgather") {
  for (const Split& s : engine_splits)
    run_world(s.size, s.per_node, [](Rank& rank) {
      for (std::int64_t count : {0, 1, 1000, 400000})
        for (int root = 0; root < rank.size(); ++root) {
          std::vector<float> data(static_cast<std::size_t>(count), static_cast<float>(rank.rank()));
          hvd_request q = Rank::request(HVD_BROADCAST, nullptr, {count}, data.data(), data.data());
          q.root = root;
          EXPECT(rank.run(q) == HVD_OK);
          for (float x : data) EXPECT(x == static_cast<float>(root));
        }
      for (int round = 0; round < 3; ++round) {
        const std::int64_t rows = (rank.rank() + round) % 3 * 30000;
        std::vector<float> data(static_cast<std::size_t>(rows) * 2, static_cast<float>(rank.rank()));
        core::Operation& op = rank.submit(Rank::request(HVD_ALLGATHER, "g", {rows, 2}, data.data(), nullptr));
        EXPECT(rank.engine().wait(op, 120) && op.status == HVD_OK);
        const float* at = static_cast<const float*>(op.result);
        std::int64_t total = 0;
        for (int r = 0; r < rank.size(); ++r) {
          const std::int64_t theirs = (r + round) % 3 * 30000;
          total += theirs;
          for (std::int64_t i = 0; i < theirs * 2; ++i) EXPECT(*at++ == static_cast<float>(r));
        }
        EXPECT((op.result_shape == std::vector<std::int64_t>{total, 2}));
        rank.engine().operations().release(op);
      }
      EXPECT(rank.run(Rank::request(HVD_BARRIER, nullptr, {}, nullptr, nullptr)) == HVD_OK);
    });
}

TEST_CASE("engine: a disagreement is an error everywhere, and then it goes on") {
  for (const Split& s : {Split{2, 0}, Split{3, 0}, Split{2, 1}, Split{4, 2}})
    run_world(s.size, s.per_node, [](Rank& rank) {
      float data[64] = {};
      for (int round = 0; round < 5; ++round) {
        const bool odd = rank.rank() == 1;
        std::string text;
        EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "x", {odd ? 10 : 20}, data, data), &text) == HVD_MISMATCH);
        EXPECT(text.find("'x'") != std::string::npos && text.find("[10] on rank 1") != std::string::npos);
        EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "x", {20}, data, data, odd ? HVD_I32 : HVD_F32), &text) ==
               HVD_MISMATCH);
        EXPECT(text.find("int32 on rank 1") != std::string::npos);
        EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "x", {20}, data, data, HVD_F32, odd ? HVD_MIN : HVD_SUM), &text) ==
               HVD_MISMATCH);
        hvd_request q = Rank::request(HVD_BROADCAST, "x", {20}, data, data);
        q.root = odd;
        EXPECT(rank.run(q, &text) == HVD_MISMATCH);
        EXPECT(text.find("root rank") != std::string::npos);
        for (int i = 0; i < 3; ++i) EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "x", {20}, data, data)) == HVD_OK);
        // All ranks change the shape together: no error.
        EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "x", {round + 1}, data, data)) == HVD_OK);
      }
    });
}

TEST_CASE("engine: groups run together, and fail together") {
  for (const Split& s : {Split{2, 0}, Split{3, 0}, Split{4, 2}})
    run_world(s.size, s.per_node, [](Rank& rank) {
      float data[3][16] = {};
      for (int round = 0; round < 6; ++round) {
        const bool bad = round % 3 == 2 && rank.rank() == 0;
        std::vector<hvd_request> qs;
        const char* names[] = {"a", "b", "c"};
        for (int i = 0; i < 3; ++i) {
          for (float& x : data[i]) x = 1;
          qs.push_back(Rank::request(HVD_ALLREDUCE, names[i], {bad && i == 1 ? 8 : 16}, data[i], data[i]));
        }
        for (core::Operation* op : rank.submit_group(qs))
          EXPECT(rank.finish(*op) == (round % 3 == 2 ? HVD_MISMATCH : HVD_OK));
        if (round % 3 != 2)
          for (auto& d : data) EXPECT(d[15] == static_cast<float>(rank.size()));
      }
    });
}

TEST_CASE("engine: names that do not fit the cache") {
  core::Config config;
  for (std::uint32_t capacity : {0u, 1u, 10u}) {
    config.set("HOROVOD_CACHE_CAPACITY", capacity);
    run_world(
        3, 0,
        [](Rank& rank) {
          for (int round = 0; round < 20; ++round) {
            std::vector<float> data(50, 1);
            std::vector<std::string> names;
            std::vector<core::Operation*> ops;
            for (int i = 0; i < 50; ++i) names.push_back("n" + std::to_string((i * 7 + rank.rank() * round) % 50));
            for (int i = 0; i < 50; ++i)
              ops.push_back(
                  &rank.submit(Rank::request(HVD_ALLREDUCE, names[static_cast<std::size_t>(i)].c_str(), {1},
                                             &data[static_cast<std::size_t>(i)], &data[static_cast<std::size_t>(i)])));
            for (auto* op : ops) {
              EXPECT(rank.engine().wait(*op, 120));
              EXPECT(op->entry == nullptr);  // its name may have been forgotten already
              EXPECT(rank.finish(*op) == HVD_OK);
            }
            for (float x : data) EXPECT(x == 3);
          }
        },
        config);
  }
}

TEST_CASE("engine: operations without names among others, more than there are ids") {
  core::Config config;
  for (int per_node : {0, 1}) {
    for (std::uint32_t capacity : {0u, 3u, 1024u}) {
      config.set("HOROVOD_CACHE_CAPACITY", capacity);
      run_world(
          3, per_node,
          [](Rank& rank) {
            constexpr std::size_t count = 700;
            for (int round = 0; round < 4; ++round) {
              std::vector<float> data(count);
              std::vector<core::Operation*> ops;
              for (std::size_t i = 0; i < count; ++i) {
                data[i] = static_cast<float>(i) + static_cast<float>(rank.rank());
                const std::string name = "known" + std::to_string(i);
                ops.push_back(&rank.submit(
                    Rank::request(HVD_ALLREDUCE, i % 5 ? nullptr : name.c_str(), {1}, &data[i], &data[i])));
              }
              for (auto* op : ops) EXPECT(rank.finish(*op) == HVD_OK);
              for (std::size_t i = 0; i < count; ++i) EXPECT(data[i] == 3 * static_cast<float>(i) + 3);
            }
          },
          config);
    }
  }
}

TEST_CASE("engine: many threads of a rank submit and wait") {
  run_world(2, 0, [](Rank& rank) {
    std::vector<std::thread> threads;
    std::atomic<int> bad{0};
    for (int t = 0; t < 6; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 100; ++i) {
          std::vector<float> data(static_cast<std::size_t>(1 + (t * 977 + i * 131) % 6000), 1);
          const std::string name = "thread." + std::to_string(t) + (i % 2 ? ".odd" : ".even");
          if (rank.run(Rank::request(HVD_ALLREDUCE, name.c_str(), {static_cast<std::int64_t>(data.size())}, data.data(),
                                     data.data())) != HVD_OK)
            ++bad;
          if (data.back() != 2) ++bad;
        }
      });
    for (auto& t : threads) t.join();
    EXPECT(bad == 0);
  });
}

TEST_CASE("engine: a name twice in flight is refused, and nothing else is disturbed") {
  run_world(2, 0, [](Rank& rank) {
    float a = 1, b = 1;
    if (rank.rank() == 0) {
      core::Operation& op = rank.submit(Rank::request(HVD_ALLREDUCE, "twice", {1}, &a, &a));
      bool refused = false;
      try {
        rank.submit(Rank::request(HVD_ALLREDUCE, "twice", {1}, &b, &b));
      } catch (const Error& e) { refused = e.code == Code::usage; }
      EXPECT(refused);
      EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "other", {1}, &b, &b)) == HVD_OK);
      EXPECT(rank.finish(op) == HVD_OK);
    } else {
      EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "other", {1}, &b, &b)) == HVD_OK);
      EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "twice", {1}, &a, &a)) == HVD_OK);
    }
    EXPECT(a == 2 && b == 2);
  });
}

TEST_CASE("engine: a rank that shuts down ends the others' waits") {
  for (const Split& s : {Split{2, 0}, Split{3, 0}, Split{4, 2}, Split{2, 1}})
    for (int leaver : {0, s.size - 1})
      run_world(s.size, s.per_node, [&](Rank& rank) {
        float x = 1;
        EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "x", {1}, &x, &x)) == HVD_OK);
        if (rank.rank() == leaver) return;
        std::string text;
        EXPECT(rank.try_run(Rank::request(HVD_ALLREDUCE, "x", {1}, &x, &x), &text, 120) == HVD_PEER_LOST);
        EXPECT(text.find("rank " + std::to_string(leaver)) != std::string::npos ||
               text.find("shut down") != std::string::npos);
      });
}

TEST_CASE("engine: start and end 200 times") {
  for (int i = 0; i < 100 / slower; ++i)
    for (int per_node : {0, 1})
      run_world(2, per_node, [&](Rank& rank) {
        float x = 1;
        if (i % 2) {
          EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "x", {1}, &x, &x)) == HVD_OK);
          return;
        }
        try {  // with a tensor in flight; the other may be gone already
          rank.submit(Rank::request(HVD_ALLREDUCE, "x", {1}, &x, &x));
        } catch (const Error& e) { EXPECT(e.code == Code::peer_lost); }
      });
}

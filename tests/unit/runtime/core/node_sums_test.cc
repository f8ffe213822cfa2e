/// Small tensors between nodes: one message up and one down, with the same bits as tensors that go in slices.
#include "core/batch/node_sums.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <random>

#include "core/engine/engine.h"
#include "watched_transport.h"
#include "world_of_threads.h"

using namespace hvd;
using namespace hvd::testing;
using transport::Tag;

namespace {

/// Random finite numbers of the dtype, as bytes, chosen such that sums are rounded: the order of additions shows in the
/// bits.
std::vector<unsigned char> numbers(hvd_dtype dtype, std::size_t elements, int seed) {
  std::vector<unsigned char> bytes(elements * element_bytes(static_cast<DType>(dtype)));
  std::mt19937 random(static_cast<unsigned>(seed));
  for (std::size_t i = 0; i < elements; ++i) {
    if (dtype == HVD_F32) {
      const float x = std::ldexp(static_cast<float>(random() % 20011) - 9999.0f, static_cast<int>(random() % 20) - 10);
      std::memcpy(&bytes[4 * i], &x, 4);
    } else if (dtype == HVD_F64) {
      const double x = std::ldexp(static_cast<double>(random()) - 2e9, static_cast<int>(random() % 40) - 20);
      std::memcpy(&bytes[8 * i], &x, 8);
    } else if (dtype == HVD_BF16 || dtype == HVD_F16) {
      const auto x = static_cast<std::uint16_t>((0x3800 + random() % 0x400) | (random() & 0x8000));
      std::memcpy(&bytes[2 * i], &x, 2);
    } else {
      for (std::size_t b = 0; b < bytes.size() / elements; ++b)
        bytes[bytes.size() / elements * i + b] =
            static_cast<unsigned char>(dtype == HVD_BOOL ? random() % 2 : random());
    }
  }
  return bytes;
}

}  // namespace

TEST_CASE("small sums between nodes have the bits of slices") {
  for (const Split s : worlds({{2, 1}, {4, 2}, {5, 2}, {7, 1}}))
    run_world(
        s.size, s.per_node,
        [](Rank& rank) {
          int round = 0;
          for (const hvd_dtype dtype : {HVD_F32, HVD_BF16, HVD_F16, HVD_F64, HVD_I8, HVD_I64, HVD_BOOL})
            for (const std::size_t elements : {1u, 3u, 1000u})
              for (const hvd_reduce reduce : {HVD_SUM, HVD_AVERAGE, HVD_MAX}) {
                if (dtype == HVD_BOOL && reduce == HVD_AVERAGE) continue;
                const auto in = numbers(dtype, elements, 100 * ++round + rank.rank());
                std::vector<unsigned char> first, out(in.size());
                const std::string name = "t" + std::to_string(round);
                for (int again = 0; again < 4; ++again) {  // the first one is in slices
                  std::fill(out.begin(), out.end(), static_cast<unsigned char>(0xee));
                  hvd_request q = Rank::request(HVD_ALLREDUCE, name.c_str(), {static_cast<std::int64_t>(elements)},
                                                in.data(), out.data(), dtype, reduce);
                  if (dtype == HVD_F32 && reduce == HVD_SUM) q.prescale = 0.3, q.postscale = 1.7;
                  EXPECT(rank.run(q) == HVD_OK);
                  if (again == 0) first = out;
                  EXPECT(out == first);
                }
              }
        },
        {}, 200'000);
}

TEST_CASE("between two nodes the network model decides which sums travel with their announcements") {
  const ops::NetworkModel fast{.latency_ns = 5'000, .byte_ns = 0.5}, far{.latency_ns = 1e6};
  CHECK(core::largest_travelling(2, {}) > 64 << 10);
  CHECK(core::largest_travelling(2, fast) == 32 << 10);
  CHECK(core::largest_travelling(2, far) == 128 << 10);
  CHECK(core::largest_travelling(3, far) == (64 << 10) / 3);
  CHECK(core::largest_travelling(1024, {}) == 64);
  // Sizes on both sides of the default limit, 82 500 bytes.
  run_world(2, 1, [](Rank& rank) {
    for (const std::size_t elements : {9'000u, 16'384u, 20'000u, 25'000u}) {
      const auto in = numbers(HVD_F32, elements, static_cast<int>(elements) + rank.rank());
      std::vector<unsigned char> first, out(in.size());
      const std::string name = "t" + std::to_string(elements);
      for (int again = 0; again < 4; ++again) {  // the first one is in slices
        hvd_request q = Rank::request(HVD_ALLREDUCE, name.c_str(), {static_cast<std::int64_t>(elements)}, in.data(),
                                      out.data(), HVD_F32, HVD_SUM);
        q.prescale = 0.3;
        EXPECT(rank.run(q) == HVD_OK);
        if (again == 0) first = out;
        EXPECT(out == first);
      }
    }
  });
}

TEST_CASE("known small sums between nodes send no slices") {
  for (const Split s : worlds({{2, 1}, {6, 2}})) {
    std::atomic<int> slices{0};
    const auto world = transport::LoopbackWorld::make(s.size);
    std::vector<std::thread> threads;
    std::vector<std::string> failures(static_cast<std::size_t>(s.size));
    for (int r = 0; r < s.size; ++r)
      threads.emplace_back([&, r] {
        try {
          core::Config config;
          config.set("HVD_RANKS_PER_NODE", s.per_node);
          auto counts = [&](Tag tag, std::string_view) { slices += tag == Tag::data; };
          Rank rank(std::make_unique<WatchedTransport>(world->open(r), counts), r, config);
          int before = 0;
          for (int round = 0; round < 20; ++round) {
            std::vector<float> small(1000, 1.0f), large(40'000, 1.0f);
            EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "small", {1000}, small.data(), small.data())) == HVD_OK);
            EXPECT(small[999] == static_cast<float>(s.size));
            if (round == 1) before = slices;
            if (round == 18) EXPECT(slices == before);
            if (round == 0 || round == 19)
              EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "large", {40'000}, large.data(), large.data())) == HVD_OK);
          }
        } catch (const std::exception& e) { failures[static_cast<std::size_t>(r)] = e.what(); }
      });
    for (std::thread& t : threads) t.join();
    for (const std::string& f : failures) CHECK(f == "");
  }
}

TEST_CASE("many small tensors at once, of which some fit a message") {
  for (const Split s : worlds({{2, 1}, {4, 2}, {3, 1}}))
    run_world(s.size, s.per_node, [](Rank& rank) {
      for (int round = 0; round < 12 / slower + 2; ++round) {
        const int count = round % 3 == 0 ? 60 : 5;
        std::vector<std::vector<float>> data;
        std::vector<std::string> names;
        std::vector<hvd_request> requests;
        for (int i = 0; i < count; ++i) {
          data.emplace_back(static_cast<std::size_t>(1 + i * 37), static_cast<float>(i + rank.rank()));
          names.push_back("m" + std::to_string(i));
        }
        for (std::size_t i = 0; i < data.size(); ++i)
          requests.push_back(Rank::request(HVD_ALLREDUCE, names[i].c_str(), {static_cast<std::int64_t>(data[i].size())},
                                           data[i].data(), data[i].data()));
        for (core::Operation* op : rank.submit_many(requests)) EXPECT(rank.finish(*op) == HVD_OK);
        const int n = rank.size();
        for (int i = 0; i < count; ++i)
          for (const float x : data[static_cast<std::size_t>(i)])
            EXPECT(x == static_cast<float>(n * i + n * (n - 1) / 2));
      }
    });
}

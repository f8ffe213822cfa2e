/// Bits are the same for every fusion and every arrival order, and are rounded once; within a node and across nodes.
#include <cmath>
#include <cstring>
#include <random>

#include "common/float8.h"
#include "world_of_threads.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

std::uint16_t brain(float f) {
  std::uint32_t u;
  std::memcpy(&u, &f, 4);
  return static_cast<std::uint16_t>(u >> 16);
}

/// Exact for small integers and powers of two.
std::uint16_t half(float f) {
  std::uint32_t u;
  std::memcpy(&u, &f, 4);
  return f == 0 ? std::uint16_t{0}
                : static_cast<std::uint16_t>((u >> 16 & 0x8000) | (((u >> 23 & 255) - 112) << 10) | (u >> 13 & 0x3ff));
}

/// Values of a narrow float type. Their sum is 1 if it is kept in float, and 0 if a node rounds its partial sum.
template <class T>
void check_rounding(Rank& rank, hvd_dtype dtype, float big, T (*encode)(float)) {
  const float values[] = {big, 1, -big, 0, 0, 0};
  for (std::int64_t count : {1, 100, 5000, 200000}) {
    std::vector<T> in(static_cast<std::size_t>(count), encode(values[rank.rank()])), out(in.size());
    for (hvd_reduce op : {HVD_SUM, HVD_AVERAGE}) {
      hvd_request q = Rank::request(HVD_ALLREDUCE, nullptr, {count}, in.data(), out.data(), dtype, op);
      q.prescale = 1;
      q.postscale = op == HVD_AVERAGE ? rank.size() : 1;  // then the sum again
      EXPECT(rank.run(q) == HVD_OK);
      for (T x : out) EXPECT(x == encode(1));
    }
  }
}

/// Tensors of several dtypes and sizes, alike for every split: [tensor] bytes of this rank.
struct Tensors {
  std::vector<hvd_dtype> dtype;
  std::vector<std::vector<unsigned char>> in;
  std::vector<std::int64_t> count;

  explicit Tensors(int rank) {
    std::mt19937 random(static_cast<unsigned>(rank) + 1);
    std::normal_distribution<double> normal;
    for (int i = 0; i < 24; ++i) {
      const hvd_dtype types[] = {HVD_F32, HVD_F16, HVD_BF16, HVD_F64, HVD_F8E4M3, HVD_F8E5M2};
      dtype.push_back(types[i % 6]);
      count.push_back(i % 8 == 7 ? 40000 + i : 1 + i * i * 11);
      in.emplace_back();
      for (std::int64_t k = 0; k < count.back(); ++k) put(normal(random));
    }
  }
  void put(double x) {
    auto append = [this](auto value) {
      const auto* bytes = reinterpret_cast<const unsigned char*>(&value);
      in.back().insert(in.back().end(), bytes, bytes + sizeof value);
    };
    const auto f = static_cast<float>(x);
    if (dtype.back() == HVD_F64)
      append(x);
    else if (dtype.back() == HVD_F32)
      append(f);
    else if (dtype.back() == HVD_F8E4M3)
      append(to_float8<f8e4m3>(f));
    else if (dtype.back() == HVD_F8E5M2)
      append(to_float8<f8e5m2>(f));
    else
      append(dtype.back() == HVD_BF16 ? brain(f) : std::fabs(f) < 0.01f ? half(0) : half(f));
  }
};

using Results = std::vector<std::vector<unsigned char>>;

/// All at once, in a random order with pauses.
Results reduce_all(Rank& rank, const Tensors& tensors, std::mt19937& random) {
  Results out = tensors.in;
  std::vector<std::string> names;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < out.size(); ++i) names.push_back("t" + std::to_string(i)), order.push_back(i);
  std::shuffle(order.begin(), order.end(), random);
  std::vector<core::Operation*> ops;
  for (std::size_t i : order) {
    ops.push_back(&rank.submit(Rank::request(HVD_ALLREDUCE, names[i].c_str(), {tensors.count[i]}, tensors.in[i].data(),
                                             out[i].data(), tensors.dtype[i], HVD_AVERAGE)));
    if (random() % 10 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
  }
  for (core::Operation* op : ops) EXPECT(rank.finish(*op) == HVD_OK);
  return out;
}

Results results_of(int ranks, int per_node, int rounds) {
  Results first;
  run_world(
      ranks, per_node,
      [&](Rank& rank) {
        const Tensors tensors(rank.rank());
        std::mt19937 random(static_cast<unsigned>(rank.rank()) + 50);
        Results mine;
        for (std::size_t i = 0; i < tensors.in.size(); ++i) {  // alone
          mine.push_back(tensors.in[i]);
          EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, nullptr, {tensors.count[i]}, tensors.in[i].data(),
                                        mine.back().data(), tensors.dtype[i], HVD_AVERAGE)) == HVD_OK);
        }
        for (int round = 0; round < rounds; ++round) EXPECT(reduce_all(rank, tensors, random) == mine);
        if (rank.rank() == 0) first = mine;
      },
      {}, 100'000);
  return first;
}

}  // namespace

TEST_CASE("bits: narrow floats are rounded once, also across nodes") {
  for (int per_node : {0, 1, 2, 3})
    run_world(6, per_node, [](Rank& rank) {
      check_rounding(rank, HVD_F16, 2048, half);
      check_rounding(rank, HVD_BF16, 256, brain);
      check_rounding<std::uint8_t>(rank, HVD_F8E4M3, 256, [](float x) { return to_float8<f8e4m3>(x).bits; });
      check_rounding<std::uint8_t>(rank, HVD_F8E5M2, 32768, [](float x) { return to_float8<f8e5m2>(x).bits; });
    });
}

TEST_CASE("bits: the same in a hundred random orders and delays") {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr int rounds = 10;
#else
  constexpr int rounds = 100;
#endif
  for (int per_node : {0, 1, 2}) results_of(3, per_node, rounds);
  results_of(5, 2, rounds / 5);
}

TEST_CASE("bits: the least of scaled unsigned integers is the same on one node and on several") {
  for (int per_node : {0, 1, 2})
    run_world(3, per_node, [](Rank& rank) {
      const std::uint8_t in = rank.rank() == 1 ? 1 : 0;
      std::uint8_t least = 0, greatest = 0;
      for (auto [reduce, out] : {std::pair{HVD_MIN, &least}, std::pair{HVD_MAX, &greatest}}) {
        hvd_request q = Rank::request(HVD_ALLREDUCE, nullptr, {1}, &in, out, HVD_U8, reduce);
        q.prescale = -1;
        q.postscale = 1;
        EXPECT(rank.run(q) == HVD_OK);
      }
      EXPECT(least == 255);  // of 0, -1, 0: -1, which becomes 255 only at the end
      EXPECT(greatest == 0);
    });
}

TEST_CASE("bits: one rank a node gives the bits of one node") { CHECK(results_of(4, 0, 1) == results_of(4, 1, 1)); }

// NaN and infinity in sums are found, with the element and the ranks from which they come.
#include "ops/finite_check.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <random>
#include <vector>

#include "common/element_types.h"
#include "ops/kernels/cpu_kernels.h"
#include "world_of_threads.h"

using namespace hvd;
using namespace hvd::testing;
using ops::FiniteCheck;

namespace {

constexpr float nan_ = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();

core::Config report() {
  core::Config config;
  config.set("HVD_AGREEMENT", "report");
  return config;
}

template <class T>
void check_kernel(DType dtype) {
  std::mt19937 random(3);
  for (const std::size_t count : {1ul, 7ul, 64ul, 511ul, 512ul, 513ul, 3000ul}) {
    std::vector<T> values(count);
    for (T& v : values) narrow(static_cast<Wide<T>>(static_cast<int>(random() % 2001) - 1000), v);
    narrow(static_cast<Wide<T>>(60000), values[count / 2]);
    CHECK(ops::first_not_finite(dtype)(values.data(), count) == count);
    for (const float bad : {nan_, inf, -inf}) {
      const std::size_t at = random() % count;
      const T before = values[at];
      narrow(static_cast<Wide<T>>(bad), values[at]);
      CHECK(ops::first_not_finite(dtype)(values.data(), count) == at);
      CHECK(ops::first_not_finite(dtype)(values.data(), at) == at);
      values[at] = before;
    }
  }
}

}  // namespace

TEST_CASE("finite: the first NaN or infinity is found in every dtype, at every length") {
  check_kernel<element::f16>(DType::f16);
  check_kernel<element::bf16>(DType::bf16);
  check_kernel<float>(DType::f32);
  check_kernel<double>(DType::f64);
  for (const DType other : {DType::i32, DType::u8, DType::boolean, DType::f8e4m3, DType::opaque})
    CHECK(!ops::first_not_finite(other));
}

TEST_CASE("finite: the inputs tell from which rank it comes, where the sum has overwritten one too") {
  FiniteCheck check({4, 5, 6});
  const std::string name = "g";
  auto look = [&](std::vector<float> a, std::vector<float> b, std::vector<float> c, bool in_place) {
    std::vector<float> sum(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) sum[i] = a[i] + b[i] + c[i];
    if (in_place) b = sum;
    const void* inputs[] = {a.data(), b.data(), c.data()};
    check.look({name, 100, sum.size(), DType::f32, DType::f32}, in_place ? b.data() : sum.data(), inputs);
    return check.take();
  };
  constexpr float large = std::numeric_limits<float>::max();
  CHECK(!look({1, 2}, {3, 4}, {5, 6}, false));
  for (const bool in_place : {false, true}) {
    auto found = look({1, 2}, {3, 4}, {5, nan_}, in_place);
    REQUIRE(found);
    CHECK(found->name == "g");
    CHECK(found->element == 101);
    CHECK(found->nan);
    CHECK(found->ranks == std::vector{6});
    found = look({1, 2}, {nan_, 4}, {5, 6}, in_place);
    REQUIRE(found);
    CHECK(found->ranks == std::vector{5});
    found = look({inf, 2}, {-inf, 4}, {5, 6}, in_place);
    REQUIRE(found);
    CHECK(found->ranks == (in_place ? std::vector{4} : std::vector{4, 5}));
    found = look({large, 2}, {large, 4}, {5, 6}, in_place);
    REQUIRE(found);
    CHECK(!found->nan);
    CHECK(found->ranks.empty());
    CHECK(found->overflow == !in_place);
    CHECK(found->perhaps == (in_place ? 5 : -1));
  }
  CHECK(!check.take());
}

TEST_CASE("finite: in all worlds, dtypes and sizes, sums name operation, element and rank, once") {
  std::mt19937 random(4);
  for (const Split& s : worlds({{2, 0}, {3, 0}, {4, 2}, {2, 1}, {3, 1}, {4, 1}})) {
    for (const std::int64_t elements : {6, 3000, 40'000, 400'000}) {
      for (const hvd_kind kind : {HVD_ALLREDUCE, HVD_REDUCESCATTER}) {
        const int culprit = static_cast<int>(random() % static_cast<unsigned>(s.size));
        const std::size_t at = random() % static_cast<std::size_t>(elements);
        const bool in_place = random() % 2, half = random() % 2;
        CAPTURE(s.size);
        CAPTURE(s.per_node);
        CAPTURE(elements);
        CAPTURE(kind);
        CAPTURE(in_place);
        CAPTURE(half);
        std::mutex mutex;
        std::vector<std::string> lines;
        run_world(
            s.size, s.per_node,
            [&](Rank& rank) {
              rank.engine().take_not_finite();
              std::vector<std::uint16_t> halves(static_cast<std::size_t>(elements), 0x3c00);
              std::vector<float> floats(halves.size(), 1), out(halves.size());
              void* const in = half ? static_cast<void*>(halves.data()) : floats.data();
              for (int step = 0; step < 4; ++step) {
                if (step == 2 && rank.rank() == culprit) halves[at] = 0x7e00, floats[at] = nan_;
                void* const to = kind == HVD_REDUCESCATTER ? nullptr : in_place ? in : static_cast<void*>(out.data());
                EXPECT(rank.run(Rank::request(kind, "gradient", {elements}, in, to, half ? HVD_F16 : HVD_F32,
                                              HVD_AVERAGE)) == HVD_OK);
                if (step == 1) EXPECT(rank.engine().take_not_finite().empty());
                if (step == 2) {
                  const std::lock_guard lock(mutex);
                  if (std::string line = rank.engine().take_not_finite(); !line.empty()) lines.push_back(line);
                  break;
                }
              }
            },
            report());
        REQUIRE(!lines.empty());
        // With one rank on each of four nodes, both ranks of each pair add.
        CHECK(lines.size() <= 4);
        for (const std::string& line : lines) {
          CAPTURE(line);
          CHECK(line.find("NaN in the sum 'gradient' in step ") == 0);
          CHECK(line.find(", element " + std::to_string(at) + ", from rank " + std::to_string(culprit) + " (") !=
                std::string::npos);
        }
      }
    }
  }
}

TEST_CASE("finite: minima, integers and broadcasts may be infinite") {
  run_world(
      2, 0,
      [&](Rank& rank) {
        rank.engine().take_not_finite();
        std::vector<float> x(3000, inf), out(3000);
        EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "least", {3000}, x.data(), out.data(), HVD_F32, HVD_MIN)) ==
               HVD_OK);
        EXPECT(rank.run(Rank::request(HVD_BROADCAST, "sent", {3000}, x.data(), out.data())) == HVD_OK);
        EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "bits", {3000}, x.data(), out.data(), HVD_I32)) == HVD_OK);
        EXPECT(rank.engine().take_not_finite().empty());
        EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "sum", {3000}, x.data(), out.data())) == HVD_OK);
        EXPECT(!rank.engine().take_not_finite().empty());
      },
      report());
}

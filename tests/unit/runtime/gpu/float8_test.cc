/// 8-bit floats on (fake) GPUs: their sums, the choice of the backend, and the results.
#include <doctest/doctest.h>

#include <algorithm>

#include "gpu/nccl/agreement.h"
#include "gpu/nccl/launch/launch.h"
#include "gpu_operations.h"

using namespace hvd;
using namespace hvd::nccl;
using namespace hvd::testing;

namespace {

template <class T>
float number(std::uint8_t bits) {
  return from_float8(T{bits});
}
template <class T>
std::vector<std::uint8_t> eights(std::size_t n, int rank) {
  std::vector<std::uint8_t> v(n);
  for (std::size_t i = 0; i < n; ++i)
    v[i] = to_float8<T>(static_cast<float>((i * 5 + static_cast<std::size_t>(rank) * 3) % 14) / 4 - 1).bits;
  return v;
}

/// Every sum in f32 is exact here, so the result is known to the bit.
template <class T>
bool is_sum(const void* got, std::size_t n, int ranks, float before, float after, std::size_t from = 0) {
  for (std::size_t i = 0; i < n; ++i) {
    float sum = 0;
    for (int r = 0; r < ranks; ++r) sum += number<T>(eights<T>(from + n, r)[from + i]) * before;
    if (number<T>(static_cast<const std::uint8_t*>(got)[i]) != number<T>(to_float8<T>(sum * after).bits)) return false;
  }
  return true;
}

template <class T>
void eight_bits(Rank& rank, hvd_dtype dtype) {
  GpuRank gpu(rank);
  const int n = rank.size();
  const float share = 1 / static_cast<float>(n);
  constexpr std::size_t count = 301;
  auto mine = [&] { return gpu.tensor(eights<T>(count, rank.rank()).data(), count); };
  void *sum = mine(), *average = mine(), *scaled = mine(), *least = mine(), *most = mine(), *rows = mine();
  const auto other = floats(count, rank.rank());
  void* single = gpu.tensor(other.data(), count * 4);
  auto request = [&](const char* name, hvd_reduce reduce, void* t) {
    return gpu.on_gpu(Rank::request(HVD_ALLREDUCE, name, {count}, t, t, dtype, reduce));
  };
  std::vector<hvd_request> all{request("sum", HVD_SUM, sum), request("average", HVD_AVERAGE, average),
                               request("scaled", HVD_SUM, scaled), request("least", HVD_MIN, least),
                               request("most", HVD_MAX, most)};
  all[2].prescale = 0.5, all[2].postscale = 4;
  all.push_back(gpu.on_gpu(Rank::request(HVD_ALLREDUCE, "single", {count}, single, single)));
  all.push_back(gpu.on_gpu(Rank::request(HVD_REDUCESCATTER, "rows", {count}, rows, nullptr, dtype, HVD_AVERAGE)));
  all.push_back(gpu.on_gpu(Rank::request(HVD_REDUCESCATTER, "even", {n * 5}, rows, nullptr, dtype, HVD_SUM)));
  all.push_back(gpu.on_gpu(Rank::request(HVD_ALLGATHER, "all", {count}, rows, nullptr, dtype)));
  const auto ops = rank.submit_group(all);
  for (core::Operation* op : ops) gpu.arrive(*op);
  EXPECT(is_sum<T>(sum, count, n, 1, 1));
  EXPECT(is_sum<T>(average, count, n, 1, share));
  EXPECT(is_sum<T>(scaled, count, n, 0.5f, 4));
  for (std::size_t i = 0; i < count; ++i) {
    float low = 1e9f, high = -1e9f;
    for (int r = 0; r < n; ++r) {
      const float x = number<T>(eights<T>(count, r)[i]);
      low = std::min(low, x), high = std::max(high, x);
    }
    EXPECT(number<T>(static_cast<std::uint8_t*>(least)[i]) == low);
    EXPECT(number<T>(static_cast<std::uint8_t*>(most)[i]) == high);
  }
  EXPECT(near(read(single, count), sum_of_floats(count, n)));
  const auto me = static_cast<std::size_t>(rank.rank()), ranks = static_cast<std::size_t>(n);
  const std::size_t each = count / ranks, more = count % ranks, rest = me < more;
  EXPECT(ops[6]->result_shape[0] == static_cast<std::int64_t>(each + rest));
  EXPECT(is_sum<T>(ops[6]->result, each + rest, n, 1, share, each * me + std::min(me, more)));
  EXPECT(is_sum<T>(ops[7]->result, 5, n, 1, 1, 5 * me));
  for (int r = 0; r < n; ++r)
    EXPECT(std::memcmp(static_cast<std::uint8_t*>(ops[8]->result) + count * static_cast<std::size_t>(r),
                       eights<T>(count, r).data(), count) == 0);
  for (core::Operation* op : ops) gpu.release(*op);
}

void both(Rank& rank) {
  eight_bits<f8e4m3>(rank, HVD_F8E4M3);
  eight_bits<f8e5m2>(rank, HVD_F8E5M2);
}

DeviceTensor reduced(std::size_t elements, DType dtype) {
  DeviceTensor t;
  t.dtype = dtype;
  t.row_bytes = elements * element_bytes(dtype);
  return t;
}

}  // namespace

TEST_CASE("sums of 8-bit floats, beside others in a batch") {
  for (const bool nccl : {false, true}) {
    core::Config config;
    config.set("HVD_NCCL_FLOAT8", nccl);
    run_world(4, 4, both, config);
  }
  core::Config config;
  // Node by node the sums of NCCL are rounded twice.
  config.set("HOROVOD_HIERARCHICAL_ALLREDUCE", cuda::Driver::get() && cuda::Gpu::at(0).no_kernels().empty());
  run_world(4, 2, both, config);
  send_through_host(config, nccl::gpu_kinds);
  run_world(3, 3, both, config);
}

TEST_CASE("sums of 8-bit floats are as the host's, to the bit, and do not saturate") {
  run_world(3, 3, [](Rank& rank) {
    GpuRank gpu(rank);
    std::vector<std::uint8_t> v(512);
    for (std::size_t i = 0; i < v.size(); ++i)
      v[i] = static_cast<std::uint8_t>(i * static_cast<std::size_t>(rank.rank() + 1) + i / 3);
    for (hvd_dtype dtype : {HVD_F8E4M3, HVD_F8E5M2})
      for (hvd_reduce reduce : {HVD_SUM, HVD_AVERAGE}) {
        std::vector<std::uint8_t> expected(v.size());
        EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "host", {512}, v.data(), expected.data(), dtype, reduce)) ==
               HVD_OK);
        void* t = gpu.tensor(v.data(), v.size());
        gpu.run(Rank::request(HVD_ALLREDUCE, "gpu", {512}, t, t, dtype, reduce));
        const unsigned least_nan = dtype == HVD_F8E4M3 ? 0x7f : 0x7d;  // the compiler chooses which NaN results
        for (std::size_t i = 0; i < v.size(); ++i) {
          const unsigned got = static_cast<const std::uint8_t*>(t)[i], wanted = expected[i];
          EXPECT(got == wanted || ((got & 0x7f) >= least_nan && (wanted & 0x7f) >= least_nan));
        }
      }
  });
}

TEST_CASE("sums of 8-bit floats: in f32 by our kernels, else in NCCL's way, else on the host") {
  const Capabilities kernels{true, false, false}, ways{true, false, true}, nccl{false, false, true}, none{};
  for (const DType dtype : {DType::f8e4m3, DType::f8e5m2}) {
    DeviceTensor t = reduced(8, dtype);
    CHECK(widened(t, kernels));
    CHECK_FALSE(widened(t, ways));
    CHECK((possible(t, 4, kernels) && possible(t, 4, ways) && possible(t, 4, nccl)));
    CHECK_FALSE(possible(t, 4, none));
    t.reduce = Reduce::average;  // factors never in 8 bits
    CHECK((widened(t, kernels) && widened(t, ways)));
    CHECK_FALSE(possible(t, 4, nccl));
    t.before = 0.5;
    const Scaling scaling = scaling_of(t, 4, kernels, true);
    CHECK((scaling.gather == 0.5 && scaling.inside == 1 && scaling.scatter == 0.25));
    t.kind = Kind::reducescatter;
    CHECK((possible(t, 4, kernels) && widened(t, kernels)));
    t.reduce = Reduce::adasum;
    CHECK_FALSE(possible(t, 4, kernels));
    std::size_t bytes = 0;
    const auto fused =
        fuse({reduced(100, dtype), reduced(10 << 20, dtype), reduced(7, DType::f32)}, 4, kernels, &bytes);
    REQUIRE(fused.size() == 1);
    CHECK((fused[0].wide && fused[0].tensors.size() == 2 && bytes == 512 + (40 << 20)));
  }
}

TEST_CASE("who may add up 8-bit floats in 8 bits") {
  const std::vector<int> ranks{0, 1};
  const std::vector<std::size_t> nodes{2};
  std::vector<DeviceInfo> cards(2);
  for (std::size_t r = 0; r < 2; ++r) {
    cards[r].version = 23007, cards[r].kernels = 1, cards[r].generation = 9, cards[r].blocks = 66;
    cards[r].uuid[0] = static_cast<char>('a' + r);
  }
  auto decided = [&] { return decide(cards, ranks, nodes); };
  CHECK_FALSE(decided().capabilities.float8);  // the kernels are better
  cards[0].float8 = 1;
  CHECK_FALSE(decided().capabilities.float8);  // not all ranks request it
  cards[1].float8 = 1;
  CHECK((decided().capabilities.float8 && decided().notes.empty()));
  cards[1].generation = 8;
  CHECK((!decided().capabilities.float8 && decided().notes.size() == 1));
  cards[1].generation = 9;
  cards[0].float8 = cards[1].kernels = 0;
  CHECK(decided().capabilities.float8);  // there are no kernels
  cards[0].version = cards[1].version = 22304;
  CHECK_FALSE(decided().capabilities.float8);
}

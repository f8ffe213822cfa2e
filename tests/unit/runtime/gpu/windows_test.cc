/// The fusion buffer as a symmetric window of NCCL, and tensors in memory that NCCL can register.
#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <utility>

#include "gpu/nccl/launch/gpu_batch.h"
#include "gpu_operations.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

constexpr std::size_t window = 2 << 20;  // the smallest

/// The windows that the fake NCCL makes on all ranks during @p run.
int windows_in(const std::function<void()>& run) {
  const int before = fake_nccl_calls("ncclCommWindowRegister");
  run();
  return fake_nccl_calls("ncclCommWindowRegister") - before;
}

}  // namespace

TEST_CASE("windows: every operation, one for each slot and rank; the next world has the same memory") {
  CHECK(windows_in([] { run_world(4, 2, all_operations, with_windows()); }) == 4);
  const int blocks = fake_nccl_calls("ncclMemAlloc");
  CHECK(blocks >= 4);
  CHECK(windows_in([] { run_world(4, 4, all_operations, with_windows()); }) == 4);
  CHECK(fake_nccl_calls("ncclMemAlloc") == blocks);
  CHECK(windows_in([] { run_world(3, 3, all_operations, with_windows(2)); }) == 6);
}

TEST_CASE("windows: each set has its own, but a set of one rank has none") {
  const auto sets = [](Rank& rank) {
    GpuRank gpu(rank);
    all_operations(rank);
    const int pair = rank.engine().add_set({0, 1}), alone = rank.engine().add_set({2});
    const float one = 1;
    for (const auto& [set, size] : {std::pair{pair, 2}, {alone, 1}}) {
      if ((set == pair) != (rank.rank() < 2)) continue;
      void* t = gpu.tensor(&one, 4);
      hvd_request q = Rank::request(HVD_ALLREDUCE, "x", {1}, t, t);
      q.set = set;
      gpu.run(q);
      EXPECT(*static_cast<float*>(t) == static_cast<float>(size));
    }
  };
  CHECK(windows_in([&] { run_world(3, 3, sets, with_windows()); }) == 3 + 2);
}

TEST_CASE("windows: not where one rank has not asked for them") {
  CHECK(windows_in([] { run_world(2, 2, all_operations); }) == 0);
}

TEST_CASE("windows: a larger batch uses ordinary memory") {
  cuda::Gpu& gpu = cuda::Gpu::at(0);
  const cuda::CurrentContext current(gpu.driver(), gpu.context());
  alignas(16) char memory[64];
  nccl::FusionBuffer buffer(gpu);
  buffer.prefer({memory, sizeof memory});
  CHECK(buffer.of(64, nullptr, true) == reinterpret_cast<cuda::Pointer>(memory));
  CHECK(buffer.of(65, nullptr, true) != reinterpret_cast<cuda::Pointer>(memory));
  CHECK(buffer.of(1, nullptr, true) == reinterpret_cast<cuda::Pointer>(memory));
}

TEST_CASE("tensors in registered memory are registered once, and the memory is used again") {
  std::atomic<int> made{0};
  const int before = fake_nccl_calls("ncclCommRegister");
  run_world(2, 2, [&](Rank& rank) {
    GpuRank gpu(rank);
    auto* block = static_cast<float*>(hvd::gpu::platform().take_registered(rank.rank(), 100));
    EXPECT(block != nullptr);
    for (int step = 0; step < 3; ++step) {
      float* t = block + 5 * step;
      *t = 1;
      gpu.run(Rank::request(HVD_ALLREDUCE, "inside", {1}, t, t));
      EXPECT(*t == 2);
    }
    const float one = 1;
    void* t = gpu.tensor(&one, 4);
    gpu.run(Rank::request(HVD_ALLREDUCE, "outside", {1}, t, t));
    hvd::gpu::platform().give_back_registered(block, rank.rank(), gpu.stream());
    cuStreamSynchronize(gpu.stream());
    EXPECT(hvd::gpu::platform().take_registered(rank.rank(), window) == block);
    void* other = hvd::gpu::platform().take_registered(rank.rank(), 1);
    EXPECT(other != nullptr);
    EXPECT(other != block);
    ++made;
  });
  CHECK(made == 2);
  CHECK(fake_nccl_calls("ncclCommRegister") - before == 2);
}

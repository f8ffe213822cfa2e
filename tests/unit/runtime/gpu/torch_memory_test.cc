/// Device memory from torch's caching allocator, here a fake (FAKE_TORCH_LIBRARY). Meson runs the tests of operations
/// with this allocator too. Without the variable this test is skipped.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "gpu/cuda/memory.h"
#include "gpu_operations.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

void* load() {
  const char* path = std::getenv("FAKE_TORCH_LIBRARY");
  void* library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  std::string why;
  if (library && !cuda::use_torch_memory(why)) std::abort();
  return library;
}
void* const torch = load();

struct Counts {
  int requests = 0, live = 0, misuses = 0, reused = 0;
};
Counts counts() {
  Counts c;
  using Ask = void (*)(int*, int*, int*, int*);
  reinterpret_cast<Ask>(dlsym(torch, "fake_torch_counts"))(&c.requests, &c.live, &c.misuses, &c.reused);
  return c;
}

}  // namespace

TEST_CASE("torch: every operation over its allocator, and all of it goes back") {
  if (!torch) return;
  run_world(4, 4, all_operations);
  run_world(4, 2, all_operations);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (counts().live > 0 && std::chrono::steady_clock::now() < end) {  // the streams complete their work
    for (int r = 0; r < 4; ++r) cuda::Gpu::at(r).tidy();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const Counts c = counts();
  CHECK(c.requests > 20);
  CHECK(c.reused > 0);
  CHECK(c.misuses == 0);
  CHECK(c.live == 0);
}

TEST_CASE("torch: a result goes back to it when the caller's stream is through with it, not before") {
  if (!torch) return;
  cuda::Gpu& gpu = cuda::Gpu::at(5);
  const cuda::CurrentContext current(gpu.driver(), gpu.context());
  const cuda::Stream ours = gpu.make_stream(), callers = gpu.make_stream();
  const cuda::Pointer block = gpu.allocate(5000, ours);
  std::vector<char> ones(5000, 1), seen(5000, 0);
  std::memcpy(reinterpret_cast<void*>(block), ones.data(), ones.size());
  gpu.lend_result(reinterpret_cast<void*>(block), callers);
  fake_cuda_copy_later(seen.data(), ones.data(), 1, callers, 50000);  // the stream is late
  gpu.driver().check(gpu.driver().copy_to_host(seen.data(), block, 5000, callers), "cuMemcpyDtoHAsync");
  const int live = counts().live;
  CHECK(cuda::free_anywhere(reinterpret_cast<void*>(block)));
  CHECK(!cuda::free_anywhere(reinterpret_cast<void*>(block)));
  cuStreamSynchronize(callers);
  CHECK(seen == ones);
  gpu.tidy();
  CHECK(counts().live == live - 1);
  CHECK(counts().misuses == 0);
  CHECK(gpu.given() == 0);
}

TEST_CASE("torch: memory of the driver from before goes back to the driver") {
  if (!torch) return;
  cuda::Gpu& gpu = cuda::Gpu::at(6);
  const cuda::CurrentContext current(gpu.driver(), gpu.context());
  const cuda::Stream stream = gpu.make_stream();
  const int requests = counts().requests;
  cuda::allow_torch_memory(false);
  std::string why;
  CHECK(!cuda::use_torch_memory(why));
  CHECK(why == "HVD_TORCH_MEMORY is 0");
  const cuda::Pointer before = gpu.allocate(700, stream);
  CHECK(counts().requests == requests);
  cuda::allow_torch_memory(true);
  const cuda::Pointer after = gpu.allocate(700, stream);
  CHECK(counts().requests == requests + 1);
  gpu.free(before);
  gpu.free(after);
  gpu.tidy();
  CHECK(gpu.given() == 0);
  CHECK(counts().misuses == 0);
}

TEST_SUITE("errors" * doctest::skip()) {
  TEST_CASE("torch has no memory") {
    run_world(2, 2, [](Rank& rank) {
      GpuRank gpu(rank);
      std::vector<float> rows(100);
      std::string text;
      try {
        gpu.take<float>(Rank::request(HVD_ALLGATHER, "rows", {100}, gpu.tensor(rows.data(), 400), nullptr));
      } catch (const Error& e) {
        EXPECT(e.code == Code::unavailable);
        text = e.what();
      }
      EXPECT(text.find("no device memory for") != std::string::npos);
      EXPECT(text.find("torch: CUDA out of memory. Tried to allocate too much (the fake says).") != std::string::npos);
    });
    for (int r = 0; r < 2; ++r) CHECK(cuda::Gpu::at(r).given() == 0);
    CHECK(counts().live == 0);
    CHECK(counts().misuses == 0);
  }
}

/// @file kernels.cc — the fake driver's work on streams: copies, and kernels by their host build; the tests' own
/// entries.
#include "gpu/cuda/kernels.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "driver.h"

using namespace fake;
using hvd::cuda::Pointer;

namespace {

std::atomic<int> copies_to_host{0};

int copy(void* to, const void* from, std::size_t bytes, void* stream) {
  return run_or_capture(stream, [=] {
    if (bytes) std::memmove(to, from, bytes);  // both may be null if the tensor is empty
  });
}
}  // namespace

FAKE int cuMemcpyHtoDAsync_v2(Pointer to, const void* from, std::size_t bytes, void* stream) {
  IN_CONTEXT("cuMemcpyHtoDAsync_v2");
  return copy(reinterpret_cast<void*>(to), from, bytes, stream);
}
FAKE int cuMemcpyDtoHAsync_v2(void* to, Pointer from, std::size_t bytes, void* stream) {
  IN_CONTEXT("cuMemcpyDtoHAsync_v2");
  ++copies_to_host;
  return copy(to, reinterpret_cast<const void*>(from), bytes, stream);
}
FAKE int cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, std::size_t bytes, void* stream) {
  IN_CONTEXT("cuMemcpyDtoDAsync_v2");
  return copy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes, stream);
}
FAKE int cuMemsetD8Async(Pointer to, unsigned char value, std::size_t bytes, void* stream) {
  IN_CONTEXT("cuMemsetD8Async");
  return run_or_capture(stream, [=] { std::memset(reinterpret_cast<void*>(to), value, bytes); });
}

// ---- kernels

namespace {

using namespace hvd::cuda;

using Kernel = void (*)(const Table&, unsigned char*, double, unsigned, unsigned, unsigned, unsigned);

template <bool gather>
void plain(const Table& table, unsigned char* buffer, double, unsigned block, unsigned blocks, unsigned thread,
           unsigned threads) {
  copy_tiles<gather>(table, buffer, block, blocks, thread, threads);
}

std::atomic<unsigned char*> to_flip{nullptr};  ///< see fake_cuda_flip()

void hash(const Table& table, unsigned char* sums, double, unsigned block, unsigned blocks, unsigned thread,
          unsigned threads) {
  if (unsigned char* at = block + thread == 0 ? to_flip.load() : nullptr)
    for (std::uint32_t i = 0; i < table.count; ++i) {
      const auto* begin = static_cast<unsigned char*>(table.tensor[i]);
      if (at >= begin && at < begin + table.units[i] && to_flip.exchange(nullptr) == at) *at ^= 4;
    }
  hash_tiles(table, sums, block, blocks, thread, threads);
}

struct Entry {
  const char* name;
  Kernel kernel;
  bool scales;
};
#define FAKE_ENTRY(T, B)                                                                 \
  {"hvd_gather_" #T "_" #B, &scale_tiles<true, hvd::element::T, hvd::element::B>, true}, \
      {"hvd_scatter_" #T "_" #B, &scale_tiles<false, hvd::element::T, hvd::element::B>, true},
const Entry kernels[] = {{"hvd_gather", &plain<true>, false},
                         {"hvd_scatter", &plain<false>, false},
                         {"hvd_hash", &hash, false},
                         HVD_SCALE_KERNELS(FAKE_ENTRY)};

/// From CUDA 12.4 on a function is loaded by an explicit call, or at its launch. A load at launch may wait for the
/// device, so it is an error here.
constexpr int lazy_launch = 999;
std::mutex loading;
std::set<const void*>& loaded_kernels() {
  static auto* all = new std::set<const void*>;
  return *all;
}
bool loaded(const void* function) {
  std::lock_guard lock(loading);
  return loaded_kernels().count(function) > 0;
}

}  // namespace

FAKE int cuModuleLoadData(void** module, const void* image) {
  UNSAFE("cuModuleLoadData");
  *module = const_cast<void*>(image);
  return 0;
}
FAKE int cuModuleGetFunction(void** function, void*, const char* name) {
  MAY_FAIL("cuModuleGetFunction");
  for (const Entry& k : kernels)
    if (std::strcmp(k.name, name) == 0) {
      *function = const_cast<Entry*>(&k);
      return 0;
    }
  return 500;
}
FAKE int cuLaunchKernel(void* function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned,
                        unsigned, void* stream, void** a, void**) {
  IN_CONTEXT("cuLaunchKernel");
  const auto& k = *static_cast<const Entry*>(function);
  if (!loaded(&k)) return lazy_launch;
  const auto table = std::make_shared<Table>(*static_cast<const Table*>(a[0]));  // parameters are copied now
  auto* buffer = reinterpret_cast<unsigned char*>(*static_cast<Pointer*>(a[1]));
  const double factor = k.scales ? *static_cast<double*>(a[2]) : 1;
  return run_or_capture(stream, [=, kernel = k.kernel] {
    for (unsigned b = 0; b < blocks; ++b)
      for (unsigned t = 0; t < threads; ++t) kernel(*table, buffer, factor, b, blocks, t, threads);
  });
}
FAKE int cuFuncLoad(void* function) {
  UNSAFE("cuFuncLoad");
  std::lock_guard lock(loading);
  loaded_kernels().insert(function);
  return 0;
}
FAKE int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int threads, std::size_t) {
  IN_CONTEXT("cuOccupancyMaxActiveBlocksPerMultiprocessor");
  *blocks = 2048 / threads;
  return 0;
}
/// For tests: the number of calls of a function; nullptr: of all functions that take time in an operation.
FAKE int fake_cuda_calls(const char* function) {
  std::lock_guard lock(counted());
  if (function) return counts()[function];
  int all = 0;
  for (const auto& [name, calls] : counts()) all += calls;
  return all;
}
/// For tests: destroys the stream, and makes another one with the same handle. The work on the destroyed stream still
/// runs.
FAKE void fake_cuda_replace_stream(void* stream) { replace(stream); }
/// For tests: flips a bit of the byte before the next kernel that hashes the byte, as a fault of the memory would.
FAKE void fake_cuda_flip(void* byte) { to_flip = static_cast<unsigned char*>(byte); }
FAKE int fake_cuda_copies_to_host() { return copies_to_host; }
FAKE void fake_cuda_enqueue(void* stream, void (*work)(void*), void* context) {
  run_or_capture(stream, [=] { work(context); });
}
FAKE void fake_cuda_enqueue_owned(void* stream, void (*work)(void*), void* context, void (*drop)(void*)) {
  run_or_capture(stream, [work, held = std::shared_ptr<void>(context, drop)] { work(held.get()); });
}
FAKE int fake_cuda_capturing(void* stream) { return capture_of(stream) ? 1 : 0; }
/// For tests: a value arrives in memory after a delay, like a kernel's result.
FAKE void fake_cuda_copy_later(void* to, const void* from, std::size_t bytes, void* stream, int delay_us) {
  auto copy =
      std::make_shared<std::vector<char>>(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
  stream_of(stream).put([=] {
    const timespec pause{delay_us / 1000000, delay_us % 1000000 * 1000L};
    nanosleep(&pause, nullptr);
    std::copy(copy->begin(), copy->end(), static_cast<char*>(to));
  });
}

/// @file torch_cuda.cc — a libtorch_cuda.so without torch: the C functions of its caching allocator, over the fake
/// driver.
///
/// The fake exposes errors of a caller that would corrupt memory with torch's own allocator. A block that comes back is
/// overwritten at once, and then serves the stream to which it belongs. FAKE_TORCH_FAIL=n: the n-th request and all
/// later ones fail.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "gpu/cuda/driver.h"

extern "C" int cuMemAlloc_v2(hvd::cuda::Pointer* address, std::size_t bytes);
extern "C" int cuCtxGetDevice(int* device);

namespace {

struct Guard {
  void* stream;
  std::int32_t device;
};
thread_local std::vector<Guard*> guards;

struct Block {
  std::size_t bytes;
  void* stream;
};
struct Counts {
  std::atomic<int> requests{0}, live{0}, misuses{0}, reused{0};
} counts;

std::mutex mutex;
std::map<void*, Block>& blocks() {
  static auto* all = new std::map<void*, Block>;  // threads may be at work when the process ends
  return *all;
}
std::multimap<std::pair<void*, std::size_t>, void*>& idle() {
  static auto* all = new std::multimap<std::pair<void*, std::size_t>, void*>;
  return *all;
}
thread_local const char* failure = "";

int refuse(const char* why) {
  failure = why;
  return 1;
}
int misuse(const char* why) {
  ++counts.misuses;
  return refuse(why);
}

}  // namespace

#define FAKE extern "C" __attribute__((visibility("default")))

FAKE int aoti_torch_create_cuda_stream_guard(void* stream, std::int32_t device, void** guard) {
  guards.push_back(new Guard{stream, device});
  *guard = guards.back();
  return 0;
}
FAKE int aoti_torch_delete_cuda_stream_guard(void* guard) {
  if (guards.empty() || guards.back() != guard) return misuse("a guard of another thread, or out of order");
  delete guards.back();
  guards.pop_back();
  return 0;
}
FAKE int aoti_torch_cuda_caching_allocator_raw_alloc(std::uint64_t bytes, void** address) {
  *address = nullptr;
  int device = -1;
  if (guards.empty() || !guards.back()->stream) return misuse("the stream is torch's, not the caller's");
  if (cuCtxGetDevice(&device) != 0 || device != guards.back()->device) return misuse("another device is current");
  if (bytes == 0) return 0;
  const int request = ++counts.requests;
  const char* from = std::getenv("FAKE_TORCH_FAIL");
  if (from && request >= std::atoi(from))
    return refuse("CUDA out of memory. Tried to allocate too much (the fake says).");
  const std::pair<void*, std::size_t> key{guards.back()->stream, bytes};
  std::lock_guard lock(mutex);
  if (const auto found = idle().find(key); found != idle().end()) {
    *address = found->second;
    idle().erase(found);
    ++counts.reused;
  } else {
    hvd::cuda::Pointer p = 0;
    if (cuMemAlloc_v2(&p, bytes) != 0) return refuse("CUDA error: out of memory");
    *address = reinterpret_cast<void*>(p);
  }
  blocks()[*address] = {bytes, key.first};
  ++counts.live;
  return 0;
}
FAKE int aoti_torch_cuda_caching_allocator_raw_delete(void* address) {
  std::lock_guard lock(mutex);
  const auto found = blocks().find(address);
  if (found == blocks().end()) return misuse("invalid device pointer");
  std::memset(address, 0xdd, found->second.bytes);
  idle().emplace(std::pair{found->second.stream, found->second.bytes}, address);
  blocks().erase(found);
  --counts.live;
  return 0;
}
FAKE const char* torch_exception_get_what_without_backtrace() { return failure; }

/// For tests: the numbers of requests, of blocks in use, of forbidden calls, and of blocks used again.
FAKE void fake_torch_counts(int* requests, int* live, int* misuses, int* reused) {
  *requests = counts.requests;
  *live = counts.live;
  *misuses = counts.misuses;
  *reused = counts.reused;
}

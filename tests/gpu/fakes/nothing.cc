/// @file nothing.cc — a CUDA driver and an NCCL in one library whose calls do nothing, and are counted.
///
/// HVD_CUDA_LIBRARY and HVD_NCCL_LIBRARY name it where the runtime's own cost is measured (hvd-bench --only gpu,
/// tests/gpu/costs_on_fakes.py). Every call succeeds within nanoseconds, no data moves, and there are no threads.
/// Device memory can be allocated and is never touched. Each process sees eight GPUs. Events are reached at once,
/// unless NCCL's groups take time on the device's streams: NOTHING_GROUP_US (0) for each group, and NOTHING_GB_S for
/// its bytes (0: no time).
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "gpu/cuda/driver.h"
#include "gpu/nccl/communicator/library.h"

namespace {

using hvd::cuda::Pointer;
using hvd::nccl::NcclConfig;
using hvd::nccl::UniqueId;

/// The number of calls of one function.
struct Kind {
  std::atomic<const char*> name{nullptr};
  std::atomic<long> calls{0};
};
constexpr std::size_t most_kinds = 256;
Kind kinds[most_kinds];

/// @p name: the same pointer in each call of a function.
void count(const char* name) {
  for (std::size_t at = reinterpret_cast<std::uintptr_t>(name) % most_kinds;; at = (at + 1) % most_kinds) {
    const char* there = kinds[at].name.load(std::memory_order_relaxed);
    if (!there && !kinds[at].name.compare_exchange_strong(there, name) && there != name) continue;
    if (there && there != name) continue;
    kinds[at].calls.fetch_add(1, std::memory_order_relaxed);
    return;
  }
}

std::atomic<long> driver_calls{0}, nccl_calls{0}, nccl_groups{0};
thread_local void* current = nullptr;
char contexts[8], some[1];

int driver(const char* caller = __builtin_FUNCTION()) {
  driver_calls.fetch_add(1, std::memory_order_relaxed);
  count(caller);
  return 0;
}
int nccl(const char* caller = __builtin_FUNCTION()) {
  nccl_calls.fetch_add(1, std::memory_order_relaxed);
  count(caller);
  return 0;
}
template <class T>
int driver(T* out, T value, const char* caller = __builtin_FUNCTION()) {
  *out = value;
  return driver(caller);
}

// ---- time on the device

/// The time when a stream, or an event, has completed its work.
using Moment = std::atomic<std::int64_t>;
Moment default_stream{0};

Moment& moment_of(void* stream_or_event) {
  return stream_or_event ? *static_cast<Moment*>(stream_or_event) : default_stream;
}

double number(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::atof(text) : 0;
}
const double group_us = number("NOTHING_GROUP_US"), gb_s = number("NOTHING_GB_S");
const bool takes_time = group_us > 0 || gb_s > 0;

std::int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

/// A thread's group of NCCL calls.
struct OpenGroup {
  int depth;
  std::size_t calls, bytes;
  void* stream;
};
thread_local OpenGroup group = {};

void end_group() {
  if (group.calls == 0) return;
  nccl_groups.fetch_add(1, std::memory_order_relaxed);
  if (takes_time) {
    const double bytes_ns = gb_s > 0 ? static_cast<double>(group.bytes) / gb_s : 0;
    Moment& stream = moment_of(group.stream);
    stream = std::max(stream.load(), now_ns()) + static_cast<std::int64_t>(group_us * 1e3 + bytes_ns);
  }
  group = {};
}

/// One of NCCL's operations.
int moves(std::size_t elements, int type, void* stream, const char* caller = __builtin_FUNCTION()) {
  constexpr std::size_t bytes_of[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  ++group.calls;
  group.bytes += elements * bytes_of[type];
  group.stream = stream;
  if (group.depth == 0) end_group();
  return nccl(caller);
}

}  // namespace

#define FAKE extern "C" __attribute__((visibility("default")))

FAKE int cuInit(unsigned) { return driver(); }
FAKE int cuDriverGetVersion(int* version) { return driver(version, 13000); }
FAKE int cuDeviceGetCount(int* count) { return driver(count, 8); }
FAKE int cuDeviceGet(int* device, int ordinal) { return driver(device, ordinal); }
FAKE int cuDeviceGetName(char* name, int length, int) {
  std::snprintf(name, static_cast<std::size_t>(length), "nothing");
  return driver();
}
FAKE int cuDeviceGetUuid_v2(hvd::cuda::Uuid* uuid, int device) {
  std::memset(uuid, 0, sizeof *uuid);
  uuid->bytes[15] = static_cast<unsigned char>(device);
  return driver();
}
FAKE int cuDeviceGetAttribute(int* value, int attribute, int) {
  constexpr int capability = 75;  // the first number
  return driver(value, attribute == capability ? 9 : 132);
}
FAKE int cuDevicePrimaryCtxRetain(void** context, int device) {
  return driver(context, static_cast<void*>(&contexts[device]));
}
FAKE int cuCtxGetCurrent(void** context) { return driver(context, current); }
FAKE int cuCtxPushCurrent_v2(void* context) { return driver(&current, context); }
FAKE int cuCtxPopCurrent_v2(void** context) { return driver(context, current); }
FAKE int cuThreadExchangeStreamCaptureMode(int*) { return driver(); }
FAKE int cuStreamIsCapturing(void*, int* status) { return driver(status, 0); }
FAKE int cuStreamCreateWithPriority(void** stream, unsigned, int) {
  return driver(stream, static_cast<void*>(new Moment{0}));
}
FAKE int cuStreamGetId(void* stream, unsigned long long* id) {
  return driver(id, static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(stream)));
}
FAKE int cuStreamWaitEvent(void* stream, void* event, unsigned) {
  if (takes_time) moment_of(stream) = std::max(moment_of(stream).load(), moment_of(event).load());
  return driver();
}
FAKE int cuStreamSynchronize(void*) { return driver(); }
FAKE int cuEventCreate(void** event, unsigned) { return driver(event, static_cast<void*>(new Moment{0})); }
FAKE int cuEventDestroy_v2(void* event) {
  delete static_cast<Moment*>(event);
  return driver();
}
FAKE int cuEventRecord(void* event, void* stream) {
  if (takes_time) moment_of(event) = moment_of(stream).load();
  return driver();
}
FAKE int cuEventQuery(void* event) {
  driver();
  return takes_time && now_ns() < moment_of(event).load() ? hvd::cuda::not_ready : 0;
}
FAKE int cuEventElapsedTime(float* milliseconds, void*, void*) { return driver(milliseconds, 0.f); }
FAKE int cuMemAlloc_v2(Pointer* address, std::size_t bytes) {
  *address = reinterpret_cast<Pointer>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  return driver();
}
FAKE int cuMemFree_v2(Pointer address) {
  std::free(reinterpret_cast<void*>(address));
  return driver();
}
FAKE int cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  *free = std::size_t{64} << 30;
  return driver(total, std::size_t{80} << 30);
}
FAKE int cuMemHostAlloc(void** address, std::size_t bytes, unsigned) {
  return driver(address, std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
}
FAKE int cuMemFreeHost(void* address) {
  std::free(address);
  return driver();
}
FAKE int cuMemcpyHtoDAsync_v2(Pointer, const void*, std::size_t, void*) { return driver(); }
FAKE int cuMemcpyDtoHAsync_v2(void*, Pointer, std::size_t, void*) { return driver(); }
FAKE int cuMemcpyDtoDAsync_v2(Pointer, Pointer, std::size_t, void*) { return driver(); }
FAKE int cuMemsetD8Async(Pointer, unsigned char, std::size_t, void*) { return driver(); }
FAKE int cuModuleLoadData(void** module, const void*) { return driver(module, static_cast<void*>(some)); }
FAKE int cuModuleGetFunction(void** function, void*, const char*) { return driver(function, static_cast<void*>(some)); }
FAKE int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                        void**) {
  return driver();
}
FAKE int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int threads, std::size_t) {
  return driver(blocks, 2048 / threads);
}
FAKE int cuGetErrorString(int, const char** text) { return driver(text, static_cast<const char*>("no error")); }

FAKE int ncclGetVersion(int* version) {
  *version = 23007;
  return nccl();
}
FAKE int ncclGetUniqueId(UniqueId* id) {
  std::memset(id, 0, sizeof *id);
  return nccl();
}
FAKE int ncclCommInitRankConfig(void** comm, int, UniqueId, int, NcclConfig*) {
  *comm = some;
  return nccl();
}
FAKE int ncclCommSplit(void*, int color, int, void** made, NcclConfig*) {
  *made = color == hvd::nccl::no_color ? nullptr : some;
  return nccl();
}
FAKE int ncclCommAbort(void*) { return nccl(); }
FAKE int ncclCommGetAsyncError(void*, int* error) {
  *error = hvd::nccl::success;
  return nccl();
}
FAKE int ncclRedOpCreatePreMulSum(int* op, void*, int, int, void*) {
  *op = 16;
  return nccl();
}
FAKE int ncclRedOpDestroy(int, void*) { return nccl(); }
FAKE int ncclAllReduce(const void*, void*, std::size_t count, int type, int, void*, void* stream) {
  return moves(count, type, stream);
}
FAKE int ncclBroadcast(const void*, void*, std::size_t count, int type, int, void*, void* stream) {
  return moves(count, type, stream);
}
FAKE int ncclReduce(const void*, void*, std::size_t count, int type, int, int, void*, void* stream) {
  return moves(count, type, stream);
}
FAKE int ncclAllGather(const void*, void*, std::size_t count, int type, void*, void* stream) {
  return moves(count, type, stream);
}
FAKE int ncclReduceScatter(const void*, void*, std::size_t count, int type, int, void*, void* stream) {
  return moves(count, type, stream);
}
FAKE int ncclSend(const void*, std::size_t count, int type, int, void*, void* stream) {
  return moves(count, type, stream);
}
FAKE int ncclRecv(void*, std::size_t count, int type, int, void*, void* stream) { return moves(count, type, stream); }
FAKE int ncclGroupStart() {
  ++group.depth;
  return nccl();
}
FAKE int ncclGroupEnd() {
  if (--group.depth == 0) end_group();
  return nccl();
}
FAKE const char* ncclGetErrorString(int) { return "no error"; }
FAKE const char* ncclGetLastError(void*) { return ""; }

/// The number of calls of the driver, and of NCCL, in this process.
FAKE void nothing_calls(long* driver, long* nccl) {
  *driver = driver_calls.load();
  *nccl = nccl_calls.load();
}
/// The number of NCCL's groups; an operation outside of a group is one too.
FAKE long nothing_groups() { return nccl_groups.load(); }
/// The name and the number of calls of the @p at-th called function; nullptr: no such function. Valid for all @p at
/// below 256.
FAKE const char* nothing_kind(int at, long* calls) {
  *calls = kinds[at].calls.load();
  return kinds[at].name.load();
}

/// @file nothing.cc — a CUDA driver and an NCCL in one library whose calls do nothing, and are counted.
///
/// To be named by HVD_CUDA_LIBRARY and HVD_NCCL_LIBRARY where the processor time of the runtime itself is measured
/// (hvd-bench --only gpu): every call succeeds within nanoseconds, all events are reached, no data moves, and there are
/// no threads.  Device memory can be asked for and is never touched.  Each process sees eight GPUs.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "gpu/cuda/driver.h"
#include "gpu/nccl/library.h"

namespace {

using hvd::cuda::Pointer;
using hvd::nccl::NcclConfig;
using hvd::nccl::UniqueId;

std::atomic<long> driver_calls{0}, nccl_calls{0};
thread_local void* current = nullptr;
char contexts[8], some[1];

int driver() {
  driver_calls.fetch_add(1, std::memory_order_relaxed);
  return 0;
}
int nccl() {
  nccl_calls.fetch_add(1, std::memory_order_relaxed);
  return 0;
}
template <class T>
int driver(T* out, T value) {
  *out = value;
  return driver();
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
FAKE int cuCtxPushCurrent_v2(void* context) { return driver(&current, context); }
FAKE int cuCtxPopCurrent_v2(void** context) { return driver(context, current); }
FAKE int cuThreadExchangeStreamCaptureMode(int*) { return driver(); }
FAKE int cuStreamIsCapturing(void*, int* status) { return driver(status, 0); }
FAKE int cuStreamCreateWithPriority(void** stream, unsigned, int) { return driver(stream, static_cast<void*>(some)); }
FAKE int cuStreamWaitEvent(void*, void*, unsigned) { return driver(); }
FAKE int cuEventCreate(void** event, unsigned) { return driver(event, static_cast<void*>(some)); }
FAKE int cuEventDestroy_v2(void*) { return driver(); }
FAKE int cuEventRecord(void*, void*) { return driver(); }
FAKE int cuEventQuery(void*) { return driver(); }
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
FAKE int ncclAllReduce(const void*, void*, std::size_t, int, int, void*, void*) { return nccl(); }
FAKE int ncclBroadcast(const void*, void*, std::size_t, int, int, void*, void*) { return nccl(); }
FAKE int ncclReduce(const void*, void*, std::size_t, int, int, int, void*, void*) { return nccl(); }
FAKE int ncclAllGather(const void*, void*, std::size_t, int, void*, void*) { return nccl(); }
FAKE int ncclReduceScatter(const void*, void*, std::size_t, int, int, void*, void*) { return nccl(); }
FAKE int ncclSend(const void*, std::size_t, int, int, void*, void*) { return nccl(); }
FAKE int ncclRecv(void*, std::size_t, int, int, void*, void*) { return nccl(); }
FAKE int ncclGroupStart() { return nccl(); }
FAKE int ncclGroupEnd() { return nccl(); }
FAKE const char* ncclGetErrorString(int) { return "no error"; }
FAKE const char* ncclGetLastError(void*) { return ""; }

/// How often the driver, and NCCL, have been called in this process.
FAKE void nothing_calls(long* driver, long* nccl) {
  *driver = driver_calls.load();
  *nccl = nccl_calls.load();
}

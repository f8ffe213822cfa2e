/// @file cuda.cc — a CUDA driver without a GPU: the symbols of libcuda.so.1 that libhvd uses, on host memory.
///
/// Device memory is host memory, kernels are their host build, streams are threads.
/// Environment: FAKE_CUDA_DEVICES (2), FAKE_CUDA_VERSION (13000), FAKE_CUDA_FAIL="cuMemAlloc_v2:3:2" (the third call
/// of it, and all later ones, return 2), FAKE_CUDA_DELAY_US (200), FAKE_CUDA_PROCESSORS (132),
/// FAKE_CUDA_MEMORY (MiB of all devices; 0: no limit), FAKE_CUDA_UUID (0: of the first device).
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "driver.h"

namespace fake {

std::mutex& counted() {
  static auto* one = new std::mutex;
  return *one;
}
std::map<std::string, int>& counts() {
  static auto* all = new std::map<std::string, int>;
  return *all;
}

void count(const char* function) {
  std::lock_guard lock(counted());
  ++counts()[function];
}

int number(const char* name, int fallback) {
  const char* text = std::getenv(name);
  return text && *text ? std::atoi(text) : fallback;
}

int failure(const char* function) {
  count(function);
  static std::mutex mutex;
  static std::map<std::string, int> calls;
  const char* text = std::getenv("FAKE_CUDA_FAIL");
  if (!text) return 0;
  char name[64];
  int from = 0, code = 0;
  if (std::sscanf(text, "%63[^:]:%d:%d", name, &from, &code) != 3 || std::strcmp(name, function) != 0) return 0;
  std::lock_guard lock(mutex);
  return ++calls[name] >= from ? code : 0;
}

namespace {

struct Event {
  explicit Event(void* made_in) : context(made_in) {}
  void* const context;
  std::mutex mutex;
  std::shared_ptr<Point> point;  ///< nullptr: never recorded, or recorded while its stream was captured
  std::shared_ptr<Capture> capture;
  void* stream = nullptr;  ///< of the capture
  std::shared_ptr<Point> now() {
    std::lock_guard lock(mutex);
    return point;
  }
  std::shared_ptr<Capture> captured() {
    std::lock_guard lock(mutex);
    return capture;
  }
};

std::mutex mutex;
std::vector<std::unique_ptr<Stream>>& streams() {
  static auto* all = new std::vector<std::unique_ptr<Stream>>;  // threads may be at work when the process ends
  return *all;
}
/// Has no destructor: it is used at exit too, after the thread's own destructors have run.
struct Contexts {
  void* all[16];
  std::size_t count;

  void* top() const { return count > 0 ? all[count - 1] : nullptr; }
};
thread_local Contexts current = {};
char primary_contexts[64];  ///< only their addresses count: one for each device

std::map<void*, void*>& contexts_of_streams() {
  static auto* all = new std::map<void*, void*>;
  return *all;
}

std::map<void*, std::size_t>& memory() {
  static auto* all = new std::map<void*, std::size_t>;
  return *all;
}
std::map<void*, int>& devices_of_memory() {
  static auto* all = new std::map<void*, int>;
  return *all;
}
/// The sum over all devices.
std::size_t used() {
  std::size_t bytes = 0;
  for (const auto& [address, size] : memory()) bytes += size;
  return bytes;
}

/// Handles that were released and now mean other streams.
std::map<void*, Stream*>& replaced() {
  static auto* all = new std::map<void*, Stream*>;
  return *all;
}
std::mutex replaced_mutex;

/// Calls that allocate memory: they wait for the device.
std::atomic<int> allocations[64];
void count_allocation() { ++allocations[static_cast<char*>(current.top()) - primary_contexts]; }

}  // namespace

int needs_context() { return current.top() ? 0 : invalid_context; }

Stream& stream_of(void* stream) {
  {
    std::lock_guard lock(replaced_mutex);
    if (const auto found = replaced().find(stream); found != replaced().end()) return *found->second;
  }
  if (stream) return *static_cast<Stream*>(stream);
  static auto* fallback = new Stream(0);
  return *fallback;
}

void replace(void* stream) {
  auto* fresh = new Stream(99);
  std::lock_guard lock(replaced_mutex);
  replaced()[stream] = fresh;
}

void enqueue(void* stream, std::function<void()> work) { stream_of(stream).put(std::move(work)); }

int run_or_capture(void* stream, std::function<void()> work) {
  bool captured = false;
  if (const int code = put(stream, &captured, work)) return code;
  if (!captured) enqueue(stream, std::move(work));
  return 0;
}

}  // namespace fake

using namespace fake;
using hvd::cuda::Pointer;

FAKE int cuInit(unsigned) {
  MAY_FAIL("cuInit");
  return 0;
}
FAKE int cuDriverGetVersion(int* version) {
  *version = number("FAKE_CUDA_VERSION", 13000);
  return 0;
}
FAKE int cuDeviceGetCount(int* count) {
  *count = number("FAKE_CUDA_DEVICES", 2);
  return 0;
}
FAKE int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}
FAKE int cuDeviceGetName(char* name, int length, int) {
  std::snprintf(name, static_cast<std::size_t>(length), "Fake GPU");
  return 0;
}
FAKE int cuDeviceGetUuid_v2(hvd::cuda::Uuid* uuid, int device) {
  std::memset(uuid, 0, sizeof *uuid);
  uuid->bytes[0] = 0xfa;
  uuid->bytes[15] = static_cast<unsigned char>(number("FAKE_CUDA_UUID", 0) + device);
  return 0;
}
FAKE int cuDeviceGetAttribute(int* value, int attribute, int) {
  constexpr int capability = 75;  // the first number
  *value = attribute == capability ? number("FAKE_CUDA_CAPABILITY", 9) : number("FAKE_CUDA_PROCESSORS", 132);
  return 0;
}
FAKE int cuDevicePrimaryCtxRetain(void** context, int device) {
  UNSAFE("cuDevicePrimaryCtxRetain");
  *context = &primary_contexts[device];
  return 0;
}
FAKE int cuCtxGetDevice(int* device) {
  IN_CONTEXT("cuCtxGetDevice");
  *device = static_cast<int>(static_cast<char*>(current.top()) - primary_contexts);
  return 0;
}
FAKE int cuCtxGetCurrent(void** context) {
  count("cuCtxGetCurrent");
  *context = current.top();
  return 0;
}
FAKE int cuCtxPushCurrent_v2(void* context) {
  count("cuCtxPushCurrent_v2");
  if (current.count == std::size(current.all)) return invalid_value;
  current.all[current.count++] = context;
  return 0;
}
FAKE int cuCtxPopCurrent_v2(void** context) {
  count("cuCtxPopCurrent_v2");
  if (current.count == 0) return invalid_context;
  *context = current.all[--current.count];
  return 0;
}
FAKE int cuStreamCreateWithPriority(void** stream, unsigned flags, int) {
  UNSAFE_IN_CONTEXT("cuStreamCreateWithPriority");
  std::lock_guard lock(fake::mutex);
  streams().push_back(std::make_unique<Stream>(static_cast<unsigned>(streams().size()) + 1));
  *stream = streams().back().get();
  contexts_of_streams()[*stream] = current.top();
  if (!(flags & 1)) blocks(*stream);
  return 0;
}
FAKE int cuStreamGetCtx(void* stream, void** context) {
  std::lock_guard lock(fake::mutex);
  const auto found = contexts_of_streams().find(stream);
  if (found == contexts_of_streams().end()) return invalid_value;
  *context = found->second;
  return 0;
}
/// The default streams have numbers too. Default streams of threads do not exist here.
FAKE int cuStreamGetId(void* stream, unsigned long long* id) {
  IN_CONTEXT("cuStreamGetId");
  if (const auto capture = capture_of(stream)) return conflict(*capture, unsupported);
  *id = stream ? stream_of(stream).id() : 0;
  return 0;
}
FAKE int cuStreamWaitEvent(void* stream, void* event, unsigned) {
  IN_CONTEXT("cuStreamWaitEvent");
  auto* e = static_cast<Event*>(event);
  bool captured = false;
  if (const int code = fake::wait(stream, e->captured(), e->stream, &captured)) return code;
  const auto point = e->now();
  if (point && !captured) stream_of(stream).put([point] { point->wait(); });
  return 0;
}
FAKE int cuStreamSynchronize(void* stream) {
  if (const auto capture = capture_of(stream)) return conflict(*capture, unsupported);
  stream_of(stream).point()->wait();
  return 0;
}
FAKE int cuEventCreate(void** event, unsigned) {
  IN_CONTEXT("cuEventCreate");
  *event = new Event(current.top());
  return 0;
}
FAKE int cuEventDestroy_v2(void* event) {
  delete static_cast<Event*>(event);
  return 0;
}
FAKE int cuEventRecord(void* event, void* stream) {
  IN_CONTEXT("cuEventRecord");
  auto* e = static_cast<Event*>(event);
  if (!stream && e->context != current.top()) return invalid_handle;
  bool captured = false;
  if (const int code = fake::put(stream, &captured)) return code;
  auto point = captured ? nullptr : stream_of(stream).point();
  std::lock_guard lock(e->mutex);
  e->point = std::move(point);
  e->capture = captured ? capture_of(stream) : nullptr;
  e->stream = stream;
  return 0;
}
/// The default stream is the same for every context here.
FAKE int cuCtxRecordEvent(void* context, void* event) {
  MAY_FAIL("cuCtxRecordEvent");
  std::lock_guard lock(fake::mutex);
  std::vector<Stream*> of_it{&stream_of(nullptr)};
  for (const auto& stream : streams())
    if (contexts_of_streams()[stream.get()] == context) of_it.push_back(stream.get());
  int code = 0;
  for (Stream* stream : of_it)
    if (const auto capture = capture_of(stream)) code = conflict(*capture, unsupported);
  if (code) return code;
  auto all = std::make_shared<Point>();
  auto left = std::make_shared<std::atomic<std::size_t>>(of_it.size());
  for (Stream* stream : of_it)
    stream->put([all, left] {
      if (--*left == 0) all->reach();
    });
  auto* e = static_cast<Event*>(event);
  std::lock_guard hold(e->mutex);
  e->point = std::move(all);
  e->capture = nullptr;
  return 0;
}
FAKE int cuEventQuery(void* event) {
  UNSAFE("cuEventQuery");
  if (const auto capture = static_cast<Event*>(event)->captured()) return conflict(*capture, captured_event);
  const auto point = static_cast<Event*>(event)->now();
  return !point || point->is_reached() ? 0 : hvd::cuda::not_ready;
}
FAKE int cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  UNSAFE("cuEventElapsedTime");
  const auto a = static_cast<Event*>(begin)->now(), b = static_cast<Event*>(end)->now();
  if (!a || !b || !a->is_reached() || !b->is_reached()) return hvd::cuda::not_ready;
  *milliseconds = static_cast<float>(static_cast<double>(b->at_ns - a->at_ns) / 1e6);
  return 0;
}
FAKE int cuMemAlloc_v2(Pointer* address, std::size_t bytes) {
  UNSAFE_IN_CONTEXT("cuMemAlloc_v2");
  count_allocation();
  const std::size_t limit = static_cast<std::size_t>(number("FAKE_CUDA_MEMORY", 0)) << 20;
  std::lock_guard lock(fake::mutex);
  if (limit > 0 && used() + bytes > limit) return out_of_memory;
  void* p = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (!p) return out_of_memory;
  std::memset(p, 0xa5, bytes);  // memory that was not written is not zero
  *address = reinterpret_cast<Pointer>(p);
  memory()[p] = bytes;
  devices_of_memory()[p] = static_cast<int>(static_cast<char*>(current.top()) - primary_contexts);
  return 0;
}
FAKE int cuMemFree_v2(Pointer address) {
  UNSAFE("cuMemFree_v2");
  std::lock_guard lock(fake::mutex);
  if (!memory().erase(reinterpret_cast<void*>(address))) return invalid_value;
  std::free(reinterpret_cast<void*>(address));
  return 0;
}
/// CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL; also for addresses inside of an allocation.
FAKE int cuPointerGetAttribute(void* data, int attribute, Pointer address) {
  std::lock_guard lock(fake::mutex);
  const auto after = memory().upper_bound(reinterpret_cast<void*>(address));
  if (attribute != 9 || after == memory().begin()) return invalid_value;
  const auto& [begin, size] = *std::prev(after);
  if (reinterpret_cast<std::uintptr_t>(begin) + size <= address) return invalid_value;
  *static_cast<int*>(data) = devices_of_memory()[begin];
  return 0;
}
FAKE int cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  UNSAFE("cuMemGetInfo_v2");
  *free = 64u << 20;
  *total = 1u << 30;
  return 0;
}
FAKE int cuMemHostAlloc(void** address, std::size_t bytes, unsigned) {
  UNSAFE_IN_CONTEXT("cuMemHostAlloc");
  count_allocation();
  *address = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return *address ? 0 : out_of_memory;
}
FAKE int cuMemFreeHost(void* address) {
  UNSAFE("cuMemFreeHost");
  std::free(address);
  return 0;
}
/// For tests: the calls on this device that allocated memory.
FAKE int fake_cuda_allocations(int device) { return allocations[device]; }
FAKE int cuGetErrorString(int code, const char** text) {
  *text = code == 2     ? "out of memory"
          : code == 100 ? "no CUDA-capable device is detected"
          : code == 201 ? "invalid device context"
          : code == 900 ? "operation not permitted when stream is capturing"
          : code == 719 ? "unspecified launch failure"
                        : "a fake error";
  return 0;
}

/// @file cuda.cc — a CUDA driver without a GPU: the symbols of libcuda.so.1 that libhvd uses, on host memory.
///
/// Device memory is host memory, kernels are their host build, streams are threads.
/// Environment: FAKE_CUDA_DEVICES (2), FAKE_CUDA_VERSION (13000), FAKE_CUDA_FAIL="cuMemAlloc_v2:3:2" (the third call
/// of it, and all later ones, return 2), FAKE_CUDA_DELAY_US (200), FAKE_CUDA_PROCESSORS (132),
/// FAKE_CUDA_MEMORY (MiB of all devices; 0: no limit), FAKE_CUDA_UUID (0: of
/// the first device).
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "capture.h"
#include "gpu/cuda/driver.h"
#include "gpu/cuda/kernels.h"
#include "stream.h"

namespace fake {

std::int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

void Point::reach() {
  std::lock_guard lock(mutex);
  reached = true;
  at_ns = now_ns();
  changed.notify_all();
}

Stream::Stream(unsigned seed)
    : id_([] {
        static std::atomic<unsigned long long> made{0};
        return ++made;
      }()),
      random_(seed),
      thread_([this] { run(); }) {}

Stream::~Stream() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Stream::put(std::function<void()> work) {
  std::lock_guard lock(mutex_);
  work_.push_back(std::move(work));
  changed_.notify_all();
}

std::shared_ptr<Point> Stream::point() {
  auto p = std::make_shared<Point>();
  put([p] { p->reach(); });
  return p;
}

bool Stream::idle() {
  std::lock_guard lock(mutex_);
  return work_.empty() && !busy_;
}

void Stream::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !work_.empty(); });
    if (work_.empty()) return;
    auto work = std::move(work_.front());
    work_.pop_front();
    busy_ = true;
    lock.unlock();
    if (most_delay_us() > 0) {
      const long us = static_cast<long>(random_()) % most_delay_us();
      const timespec pause{0, us * 1000};
      nanosleep(&pause, nullptr);
    }
    work();
    lock.lock();
    busy_ = false;
  }
}

namespace {

std::mutex counted;
std::map<std::string, int>& counts() {
  static auto* all = new std::map<std::string, int>;
  return *all;
}

}  // namespace

void count(const char* function) {
  std::lock_guard lock(counted);
  ++counts()[function];
}

namespace {

int number(const char* name, int fallback) {
  const char* text = std::getenv(name);
  return text && *text ? std::atoi(text) : fallback;
}

/// Counts a call. Returns the code that FAKE_CUDA_FAIL has for it; 0: succeed.
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

Stream& stream_of(void* stream) {
  {
    std::lock_guard lock(replaced_mutex);
    if (const auto found = replaced().find(stream); found != replaced().end()) return *found->second;
  }
  if (stream) return *static_cast<Stream*>(stream);
  static auto* fallback = new Stream(0);
  return *fallback;
}

/// Calls that allocate memory: they wait for the device.
std::atomic<int> allocations[64];
void count_allocation() { ++allocations[static_cast<char*>(current.top()) - primary_contexts]; }

std::atomic<int> copies_to_host{0};

constexpr int invalid_value = 1, out_of_memory = 2, invalid_context = 201, invalid_handle = 400;

/// Returns an error if there is no current context. The runtime's threads must always have one.
int needs_context() { return current.top() ? 0 : invalid_context; }

}  // namespace
}  // namespace fake

using namespace fake;
using hvd::cuda::Pointer;

#define FAKE extern "C" __attribute__((visibility("default")))
#define MAY_FAIL(name) \
  if (const int code = failure(name)) return code
#define IN_CONTEXT(name) \
  MAY_FAIL(name);        \
  if (const int code = needs_context()) return code
#define UNSAFE(name) \
  MAY_FAIL(name);    \
  if (const int code = unsafe()) return code
#define UNSAFE_IN_CONTEXT(name) \
  IN_CONTEXT(name);             \
  if (const int code = unsafe()) return code

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
  *context = &fake::primary_contexts[device];
  return 0;
}
FAKE int cuCtxGetDevice(int* device) {
  IN_CONTEXT("cuCtxGetDevice");
  *device = static_cast<int>(static_cast<char*>(current.top()) - fake::primary_contexts);
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
  auto* e = static_cast<fake::Event*>(event);
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
  *event = new fake::Event(current.top());
  return 0;
}
FAKE int cuEventDestroy_v2(void* event) {
  delete static_cast<fake::Event*>(event);
  return 0;
}
FAKE int cuEventRecord(void* event, void* stream) {
  IN_CONTEXT("cuEventRecord");
  auto* e = static_cast<fake::Event*>(event);
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
  auto* e = static_cast<fake::Event*>(event);
  std::lock_guard hold(e->mutex);
  e->point = std::move(all);
  e->capture = nullptr;
  return 0;
}
FAKE int cuEventQuery(void* event) {
  UNSAFE("cuEventQuery");
  if (const auto capture = static_cast<fake::Event*>(event)->captured()) return conflict(*capture, captured_event);
  const auto point = static_cast<fake::Event*>(event)->now();
  return !point || point->is_reached() ? 0 : hvd::cuda::not_ready;
}
FAKE int cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  UNSAFE("cuEventElapsedTime");
  const auto a = static_cast<fake::Event*>(begin)->now(), b = static_cast<fake::Event*>(end)->now();
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
  devices_of_memory()[p] = static_cast<int>(static_cast<char*>(current.top()) - fake::primary_contexts);
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

void fake::enqueue(void* stream, std::function<void()> work) { stream_of(stream).put(std::move(work)); }

namespace {
/// Returns an error if the capture of the stream is invalid.
int run_or_capture(void* stream, std::function<void()> work) {
  bool captured = false;
  if (const int code = fake::put(stream, &captured, work)) return code;
  if (!captured) enqueue(stream, std::move(work));
  return 0;
}

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

// ---- kernels: their host build

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
std::set<const void*>& loaded_kernels() {
  static auto* all = new std::set<const void*>;
  return *all;
}
bool loaded(const void* function) {
  std::lock_guard lock(fake::mutex);
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
  std::lock_guard lock(fake::mutex);
  loaded_kernels().insert(function);
  return 0;
}
FAKE int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int threads, std::size_t) {
  IN_CONTEXT("cuOccupancyMaxActiveBlocksPerMultiprocessor");
  *blocks = 2048 / threads;
  return 0;
}
FAKE int cuGetErrorString(int code, const char** text) {
  *text = code == 2     ? "out of memory"
          : code == 100 ? "no CUDA-capable device is detected"
          : code == 201 ? "invalid device context"
          : code == 900 ? "operation not permitted when stream is capturing"
          : code == 719 ? "unspecified launch failure"
                        : "a fake error";
  return 0;
}

/// For tests: the number of calls of a function; nullptr: of all functions that take time in an operation.
FAKE int fake_cuda_calls(const char* function) {
  std::lock_guard lock(counted);
  if (function) return counts()[function];
  int all = 0;
  for (const auto& [name, calls] : counts()) all += calls;
  return all;
}
/// For tests: destroys the stream, and makes another one with the same handle. The work on the destroyed stream still
/// runs.
FAKE void fake_cuda_replace_stream(void* stream) {
  auto* fresh = new fake::Stream(99);
  std::lock_guard lock(replaced_mutex);
  replaced()[stream] = fresh;
}
/// For tests: flips a bit of the byte before the next kernel that hashes the byte, as a fault of the memory would.
FAKE void fake_cuda_flip(void* byte) { to_flip = static_cast<unsigned char*>(byte); }
FAKE int fake_cuda_copies_to_host() { return copies_to_host; }
FAKE int fake_cuda_allocations(int device) { return allocations[device]; }
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

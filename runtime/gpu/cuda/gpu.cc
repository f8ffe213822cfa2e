#include "gpu/cuda/gpu.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"

namespace hvd::cuda {
namespace {

constexpr int attribute_processors = 16;
constexpr int attribute_capability = 75;  ///< CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
constexpr unsigned event_untimed = 2;
constexpr unsigned stream_non_blocking = 1;

std::mutex gpus_mutex;
std::atomic<bool> any_gpu{false};
std::vector<std::unique_ptr<Gpu>>& gpus() {
  // Never destroyed: threads may still use the GPUs when the process exits.
  static auto* all = new std::vector<std::unique_ptr<Gpu>>;
  return *all;
}

std::string text_of(const Uuid& u) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits[u.bytes[i] >> 4];
    text += digits[u.bytes[i] & 15];
  }
  return text;
}

}  // namespace

Mark::Mark(Gpu& gpu, Event event, bool timed, gpu::StreamId stream)
    : gpu_(gpu), event_(event), timed_(timed), number_(made.fetch_add(1, std::memory_order_relaxed)), stream_(stream) {}

Mark::~Mark() { gpu_.give_back(event_, timed_); }

/// The event knows its context, so a query needs no current context.  But the driver may refuse a thread that has none.
bool Mark::reached() const {
  const RelaxedCapture relaxed(gpu_.driver());
  int code = gpu_.driver().event_query(event_);
  if (code == invalid_context) {
    const StreamContextScope current(gpu_.driver(), gpu_.context());
    code = gpu_.driver().event_query(event_);
  }
  if (code == not_ready) return false;
  gpu_.driver().check(code, "cuEventQuery");
  return true;
}

void Mark::hold(Stream stream) const {
  const StreamContextScope current(gpu_.driver(), gpu_.context());
  gpu_.driver().check(gpu_.driver().stream_wait_event(stream, event_, 0), "cuStreamWaitEvent");
}

std::int64_t Mark::since_ns(const Mark& before) const {
  float milliseconds = 0;
  const int code = gpu_.driver().event_elapsed(&milliseconds, before.event_, event_);
  if (code == not_ready) return 0;
  gpu_.driver().check(code, "cuEventElapsedTime");
  return static_cast<std::int64_t>(static_cast<double>(milliseconds) * 1e6);
}

Gpu& Gpu::at(int ordinal) {
  const Driver* driver = Driver::get();
  const std::string where = "cuda:" + std::to_string(ordinal);
  if (!driver) throw Error(Code::unavailable, where, Driver::why_not(), "copy the tensor to the host");
  if (ordinal < 0 || ordinal >= driver->devices)
    throw Error(Code::usage, where, "this process sees " + std::to_string(driver->devices) + " GPUs");
  std::lock_guard lock(gpus_mutex);
  if (gpus().empty()) gpus().resize(static_cast<std::size_t>(driver->devices));
  auto& gpu = gpus()[static_cast<std::size_t>(ordinal)];
  if (!gpu) gpu.reset(new Gpu(*driver, ordinal));
  any_gpu.store(true, std::memory_order_release);
  return *gpu;
}

bool free_anywhere(void* result) {
  if (!any_gpu.load(std::memory_order_acquire)) return false;
  std::vector<Gpu*> all;  // called without the lock: see MemorySource
  {
    std::lock_guard lock(gpus_mutex);
    for (auto& gpu : gpus())
      if (gpu) all.push_back(gpu.get());
  }
  return std::any_of(all.begin(), all.end(),
                     [&](Gpu* gpu) { return gpu->take_back(reinterpret_cast<Pointer>(result)); });
}

Gpu::Gpu(const Driver& driver, int ordinal) : driver_(driver), ordinal_(ordinal) {
  const RelaxedCapture relaxed(driver_);
  driver_.check(driver_.device_get(&device_, ordinal), "cuDeviceGet");
  char name[128] = "";
  driver_.check(driver_.device_name(name, sizeof name - 1, device_), "cuDeviceGetName");
  name_ = name;
  Uuid uuid{};
  driver_.check(driver_.device_uuid(&uuid, device_), "cuDeviceGetUuid");
  uuid_ = text_of(uuid);
  driver_.check(driver_.device_attribute(&processors_, attribute_processors, device_), "cuDeviceGetAttribute");
  driver_.check(driver_.device_attribute(&generation_, attribute_capability, device_), "cuDeviceGetAttribute");
  driver_.check(driver_.primary_retain(&context_, device_), "cuDevicePrimaryCtxRetain");
  load_kernels();
}

void Gpu::load_kernels() {
  if (!kernel_image()) {
    no_kernels_ = "libhvd was built without nvcc";
    return;
  }
  try {
    const CurrentContext current(driver_, context_);
    Module module = nullptr;
    driver_.check(driver_.module_load(&module, kernel_image()), "cuModuleLoadData");
    load_all(module);
  } catch (const Error& e) {  // the image has no code for this GPU; with lazy loading, only load_all() fails
    no_kernels_ = e.what();
  }
}

void Gpu::load_all(Module module) {
  copies_ = {load(module, "hvd_scatter"), load(module, "hvd_gather")};
  hash_ = load(module, "hvd_hash");
  std::size_t i = 0;
#define HVD_LOAD(T, B) scales_[i++] = {load(module, "hvd_scatter_" #T "_" #B), load(module, "hvd_gather_" #T "_" #B)};
  HVD_SCALE_KERNELS(HVD_LOAD)
#undef HVD_LOAD
}

/// Loads a kernel now, and not at its first launch.  A first launch may wait for the device ("Lazy Loading" in the CUDA
/// programming guide).  On the device, a kernel of NCCL may wait for this rank.
Gpu::Kernel Gpu::load(Module module, const std::string& name) {
  Kernel kernel;
  driver_.check(driver_.module_function(&kernel.function, module, name.c_str()), name.c_str());
  if (driver_.function_load) driver_.check(driver_.function_load(kernel.function), "cuFuncLoad");
  int blocks = 0;
  driver_.check(driver_.occupancy(&blocks, kernel.function, block_threads, 0),
                "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  kernel.blocks = static_cast<unsigned>(std::max(blocks, 1) * processors_);
  return kernel;
}

Stream Gpu::make_stream() {
  Stream stream = nullptr;
  driver_.check(driver_.stream_create(&stream, stream_non_blocking, -100), "cuStreamCreateWithPriority");
  return stream;
}

/// Runs for each tensor that a framework submits: two driver calls, and cuStreamGetId for a stream that has an id.
/// First tries without making the context current.  The driver refuses to record an event on a stream of another
/// context.
std::shared_ptr<gpu::StreamMark> Gpu::mark_caller(gpu::StreamHandle stream) {
  if (stream != whole_context) {
    int status = 0;
    if (driver_.is_capturing(stream, &status) == success && status == 0) {
      auto mark = std::make_shared<Mark>(*this, take_event(false), false, id_of(stream));
      if (driver_.event_record(mark->event(), stream) == success) return mark;
    }
  }
  const StreamContextScope current(driver_, context_);
  return driver_.capturing(stream) ? nullptr : mark(stream, false, id_of(stream));
}

std::shared_ptr<Mark> Gpu::arrival(Stream stream, gpu::StreamId id) {
  const std::lock_guard lock(arrival_mutex_);
  if (id != 0 && arrival_ && arrival_->stream() == id && arrived_before_ == Mark::next_number()) return arrival_;
  arrival_ = std::make_shared<Mark>(*this, take_event(true), true, id);
  arrived_before_ = Mark::next_number();
  if (driver_.event_record(arrival_->event(), stream) != success) arrival_ = nullptr;  // a stream of another device
  return arrival_;
}

void Gpu::lend_result(void* result, gpu::StreamHandle stream) { lend(reinterpret_cast<Pointer>(result), stream); }

gpu::StreamId Gpu::id_of(Stream stream) const {
  constexpr gpu::StreamId first = default_stream + 1;
  if (is_default(stream)) return default_stream;
  unsigned long long id = 0;
  if (stream == per_thread || stream == whole_context || !driver_.stream_id) return 0;
  return driver_.stream_id(stream, &id) == success ? first + id : 0;
}

Event Gpu::take_event(bool timed) {
  {
    std::lock_guard lock(mutex_);
    auto& pool = events_[timed];
    if (!pool.empty()) {
      const Event event = pool.back();
      pool.pop_back();
      return event;
    }
  }
  const CurrentContext current(driver_, context_);
  Event event = nullptr;
  driver_.check(driver_.event_create(&event, timed ? 0 : event_untimed), "cuEventCreate");
  return event;
}

std::shared_ptr<Mark> Gpu::mark(Stream stream, bool timed, gpu::StreamId id) {
  auto mark = std::make_shared<Mark>(*this, take_event(timed), timed, id);
  if (stream == whole_context)
    record_all(mark->event());
  else
    driver_.check(driver_.event_record(mark->event(), stream), "cuEventRecord");
  return mark;
}

/// "Captures in hEvent all the activities of the context at the time of this call" (CUDA driver API, cuCtxRecordEvent).
///
/// The activities include the runtime's own streams, with NCCL kernels that wait for other ranks.  Still, the waits
/// cannot form a cycle.  Say that X waits for Y if, on some rank, X's work may begin only after Y's work.  There are
/// two cases:
///   - An event orders them.  Then that rank launched Y before it submitted X.  Every rank launches X only after all
///     ranks have submitted X.  So Y was launched on that rank before X was launched on any rank.
///   - X follows Y on a stream of the runtime.  All ranks agree on one order, so X follows Y on every rank.
/// In both cases the first launch of Y, among all ranks, is before the first launch of X.  A chain of waits goes back
/// in time, so it never returns to its start.
void Gpu::record_all(Event event) {
  constexpr int capture_unsupported = 900;
  if (!driver_.context_record)
    throw Error(Code::unavailable, "cuda:" + std::to_string(ordinal_),
                "the driver lacks cuCtxRecordEvent: to wait for a whole context, one for CUDA 12.5 or later is needed");
  const int code = driver_.context_record(context_, event);
  if (code == capture_unsupported)
    throw Error(Code::usage, "CUDA graph",
                "a stream of this GPU is being captured into a graph, and the tensor may come from any of its streams",
                "call hvd outside the capture");
  driver_.check(code, "cuCtxRecordEvent");
}

void Gpu::give_back(Event event, bool timed) {
  std::lock_guard lock(mutex_);
  events_[timed].push_back(event);
}

int Gpu::reserve() {
  std::lock_guard lock(mutex_);
  const int part = (processors_ - reserved_ + 1) / 2;
  reserved_ += part;
  return part;
}

void Gpu::unreserve(int processors) {
  std::lock_guard lock(mutex_);
  reserved_ -= processors;
}

bool Gpu::capturing(Stream stream) const {
  const StreamContextScope current(driver_, context_);
  return driver_.capturing(stream);
}

void Gpu::copy(bool gather, std::span<const Piece> pieces, Pointer buffer, Stream stream) {
  launch(copies_[gather], pieces, byte_units, buffer, 1, stream);
}

void Gpu::scale(bool gather, DType dtype, bool wide, std::span<const Piece> pieces, Pointer buffer, double factor,
                Stream stream) {
  const std::size_t row = scale_row(dtype, wide ? DType::f32 : dtype);
  launch(scales_[row][gather], pieces, scale_units[row], buffer, factor, stream);
}

void Gpu::hash(std::span<const Piece> pieces, Pointer sums, Stream stream) {
  launch(hash_, pieces, hash_units, sums, 1, stream);
}

void Gpu::launch(const Kernel& kernel, std::span<const Piece> pieces, const Units& units, Pointer buffer, double factor,
                 Stream stream) {
  Table table;
  for (Filled from; from.piece < pieces.size();) {
    from = fill(table, pieces, units, from);
    if (table.tiles == 0) continue;
    // A plain copy has no factor, and the driver does not read the third argument.
    void* arguments[] = {&table, &buffer, &factor};
    const unsigned blocks = std::min(table.tiles, kernel.blocks);
    driver_.check(driver_.launch(kernel.function, blocks, 1, 1, block_threads, 1, 1, 0, stream, arguments, nullptr),
                  "cuLaunchKernel");
  }
}

}  // namespace hvd::cuda

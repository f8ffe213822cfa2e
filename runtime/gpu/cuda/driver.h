/// @file driver.h — the functions of the CUDA driver, looked up at run time.
///
/// The build does not need the CUDA headers.  This file declares the few types and numbers of CUDA's stable interface.
/// So every build can use a GPU, and no build needs one.  Any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace hvd::cuda {

using Device = int;
using Context = void*;
using Stream = void*;
using Event = void*;
using Module = void*;
using Function = void*;
using Pointer = unsigned long long;  ///< address in device memory
struct Uuid {
  unsigned char bytes[16];
};

/// CU_STREAM_LEGACY: the default stream, the same stream as nullptr.
inline const Stream legacy = reinterpret_cast<Stream>(1);

/// CU_STREAM_PER_THREAD: one handle that means a different stream in each thread.
inline const Stream per_thread = reinterpret_cast<Stream>(2);

/// A value in place of a stream that means all streams of the primary context (HVD_WHOLE_CONTEXT).  Only Gpu::mark()
/// and Driver::capturing() accept this value.
inline const Stream whole_context = reinterpret_cast<Stream>(-1);

inline constexpr int success = 0;
inline constexpr int invalid_context = 201;
inline constexpr int not_ready = 600;

/// The driver's functions that the runtime uses, with the symbols of the required versions.
#define HVD_CUDA_FUNCTIONS(X)                                                                                  \
  X(init, "cuInit", (unsigned flags))                                                                          \
  X(driver_version, "cuDriverGetVersion", (int* version))                                                      \
  X(device_count, "cuDeviceGetCount", (int* count))                                                            \
  X(device_get, "cuDeviceGet", (Device * device, int ordinal))                                                 \
  X(device_name, "cuDeviceGetName", (char* name, int length, Device device))                                   \
  X(device_uuid, "cuDeviceGetUuid_v2", (Uuid * uuid, Device device))                                           \
  X(device_attribute, "cuDeviceGetAttribute", (int* value, int attribute, Device device))                      \
  X(primary_retain, "cuDevicePrimaryCtxRetain", (Context * context, Device device))                            \
  X(push, "cuCtxPushCurrent_v2", (Context context))                                                            \
  X(pop, "cuCtxPopCurrent_v2", (Context * context))                                                            \
  X(get_current, "cuCtxGetCurrent", (Context * context))                                                       \
  X(stream_create, "cuStreamCreateWithPriority", (Stream * stream, unsigned flags, int priority))              \
  X(exchange_mode, "cuThreadExchangeStreamCaptureMode", (int* mode))                                           \
  X(is_capturing, "cuStreamIsCapturing", (Stream stream, int* status))                                         \
  X(stream_wait_event, "cuStreamWaitEvent", (Stream stream, Event event, unsigned flags))                      \
  X(event_create, "cuEventCreate", (Event * event, unsigned flags))                                            \
  X(event_destroy, "cuEventDestroy_v2", (Event event))                                                         \
  X(event_record, "cuEventRecord", (Event event, Stream stream))                                               \
  X(event_query, "cuEventQuery", (Event event))                                                                \
  X(event_elapsed, "cuEventElapsedTime", (float* milliseconds, Event begin, Event end))                        \
  X(mem_alloc, "cuMemAlloc_v2", (Pointer * address, std::size_t bytes))                                        \
  X(mem_free, "cuMemFree_v2", (Pointer address))                                                               \
  X(mem_info, "cuMemGetInfo_v2", (std::size_t * free, std::size_t * total))                                    \
  X(host_alloc, "cuMemHostAlloc", (void** address, std::size_t bytes, unsigned flags))                         \
  X(host_free, "cuMemFreeHost", (void* address))                                                               \
  X(copy_to_device, "cuMemcpyHtoDAsync_v2", (Pointer to, const void* from, std::size_t bytes, Stream stream))  \
  X(copy_to_host, "cuMemcpyDtoHAsync_v2", (void* to, Pointer from, std::size_t bytes, Stream stream))          \
  X(copy, "cuMemcpyDtoDAsync_v2", (Pointer to, Pointer from, std::size_t bytes, Stream stream))                \
  X(fill, "cuMemsetD8Async", (Pointer to, unsigned char value, std::size_t bytes, Stream stream))              \
  X(module_load, "cuModuleLoadData", (Module * module, const void* image))                                     \
  X(module_function, "cuModuleGetFunction", (Function * function, Module module, const char* name))            \
  X(launch, "cuLaunchKernel",                                                                                  \
    (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
     unsigned block_z, unsigned shared_bytes, Stream stream, void** arguments, void** extra))                  \
  X(occupancy, "cuOccupancyMaxActiveBlocksPerMultiprocessor",                                                  \
    (int* blocks, Function function, int block_threads, std::size_t shared_bytes))                             \
  X(error_text, "cuGetErrorString", (int code, const char** text))

struct Driver {
#define HVD_CUDA_MEMBER(member, symbol, arguments) int(*member) arguments = nullptr;
  HVD_CUDA_FUNCTIONS(HVD_CUDA_MEMBER)
#undef HVD_CUDA_MEMBER
  /// cuFuncLoad.  nullptr before CUDA 12.4, where cuModuleGetFunction loads the function.
  int (*function_load)(Function function) = nullptr;
  /// cuStreamGetId.  nullptr before CUDA 12.0.
  int (*stream_id)(Stream stream, unsigned long long* id) = nullptr;
  /// cuCtxRecordEvent.  nullptr before CUDA 12.5.
  int (*context_record)(Context context, Event event) = nullptr;
  std::string path;  ///< file name of the library
  int version = 0;   ///< the newest CUDA version that the driver supports: 13000 is 13.0
  int devices = 0;   ///< GPUs that this process sees

  /// The process's driver.  The first call opens the library and calls cuInit.  nullptr if there is no driver:
  /// why_not() returns the reason.
  static const Driver* get();
  static std::string why_not();

  /// Throws Error{unavailable} unless @p code is success.  @p what: the function's name, such as "cuMemAlloc".
  void check(int code, const char* what) const;
  std::string text(int code) const;
  /// Returns true if work on @p stream becomes part of a graph, and does not run.  Also returns true if another
  /// stream's capture forbids the use of @p stream until that capture ends.  The context must be current.
  bool capturing(Stream stream) const;
};

/// Declares that the calling thread belongs to the runtime alone, until the thread ends.  The first context that the
/// thread needs stays current.  The thread's calls stay in the relaxed capture mode.  So later scopes on this thread
/// need no driver calls.
void keep_context();

/// While this object lives, the thread may make driver calls that a capture on another thread would forbid.  The calls
/// do not disturb that capture.
///
/// By default, a thread that captures a graph forbids some calls on all other threads.  Examples: query an event,
/// allocate or free memory, load a module.  A forbidden call fails and invalidates the capture.  The runtime's work is
/// never part of a graph, so no graph depends on the work.  CUDA's documentation of cuThreadExchangeStreamCaptureMode
/// describes this use.  Even in this mode, a thread must not query an event or stream of the capture: capturing()
/// prevents that.  Calls that only put work on a stream do not need this object.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver);
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const Driver& driver_;
  const bool fresh_;  ///< no other object of this class lives on this thread
  int mode_ = 2;      ///< CU_STREAM_CAPTURE_MODE_RELAXED; after the exchange, the previous mode
};

/// Makes a context current on the calling thread while this object lives.  The destructor restores the previous
/// context.  Inside of a scope with the same context, the object does not call the driver.  If the context is current
/// otherwise, the object only asks the driver for the current context.  Sufficient for calls that put work on streams.
class StreamContextScope {
 public:
  StreamContextScope(const Driver& driver, Context context);
  ~StreamContextScope();
  StreamContextScope(const StreamContextScope&) = delete;
  StreamContextScope& operator=(const StreamContextScope&) = delete;

 private:
  const Driver& driver_;
  Context outer_;  ///< the context that the enclosing scope of this thread has made current
  bool pushed_ = false;
};

/// A StreamContextScope with RelaxedCapture.  Sufficient for all calls: a capture on another thread does not forbid
/// them.
class CurrentContext {
 public:
  CurrentContext(const Driver& driver, Context context) : relaxed_(driver), scope_(driver, context) {}

 private:
  const RelaxedCapture relaxed_;
  const StreamContextScope scope_;
};

}  // namespace hvd::cuda

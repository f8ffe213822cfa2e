/// @file driver.h — the CUDA driver's functions, found at run time.
///
/// Nothing here is compiled against CUDA: the few types and numbers of its stable
/// interface are declared below, so every build can use a GPU and none needs one.
/// Any thread.
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
using Pointer = unsigned long long;  ///< an address on the device
struct Uuid {
  unsigned char bytes[16];
};

/// CU_STREAM_LEGACY: the default stream, like nullptr.
inline const Stream legacy = reinterpret_cast<Stream>(1);

/// CU_STREAM_PER_THREAD: one number for a stream of each thread's own.
inline const Stream per_thread = reinterpret_cast<Stream>(2);

/// In the place of a stream: all streams of the primary context (HVD_WHOLE_CONTEXT).  Only Gpu::mark() and
/// Driver::capturing() accept it.
inline const Stream whole_context = reinterpret_cast<Stream>(-1);

inline constexpr int success = 0;
inline constexpr int invalid_context = 201;
inline constexpr int not_ready = 600;

/// The driver's functions that we use, by the names of the versions that we mean.
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
  /// cuFuncLoad; nullptr before 12.4: there cuModuleGetFunction loads.
  int (*function_load)(Function function) = nullptr;
  /// cuStreamGetId; nullptr before 12.0.
  int (*stream_id)(Stream stream, unsigned long long* id) = nullptr;
  /// cuCtxRecordEvent; nullptr before 12.5.
  int (*context_record)(Context context, Event event) = nullptr;
  std::string path;  ///< what was loaded
  int version = 0;   ///< 13000: what the driver can run
  int devices = 0;   ///< visible to this process

  /// The process's driver; opened, and cuInit called, at the first use.  nullptr where there is none: why_not() says
  /// why.
  static const Driver* get();
  static std::string why_not();

  /// Throws Error{unavailable} unless @p code is success.  @p what: "cuMemAlloc"
  void check(int code, const char* what) const;
  std::string text(int code) const;
  /// What is put on @p stream becomes part of a graph, and does not run; or the stream is of no use until a capture
  /// elsewhere has ended.  With the context current.
  bool capturing(Stream stream) const;
};

/// From now on the calling thread belongs to the runtime, and to nothing else.  The first context that it needs stays
/// current there, and its calls leave captures alone for good: what follows then costs no call of the driver.
void keep_context();

/// While this lives, calls of this thread that a capture elsewhere in the process forbids are allowed, and leave that
/// capture alone.
///
/// A thread that captures a graph in the default mode forbids the others whatever a graph could not hold: to ask for an
/// event, to get or to give back memory, to load a module.  Such a call fails, and the capture with it.  Nothing of
/// ours is ever part of a graph, so none depends on it.  CUDA's documentation of cuThreadExchangeStreamCaptureMode
/// describes this use; what it does not allow, namely to ask for an event or stream of the capture, we avoid
/// (capturing()).  Work that is put on a stream needs none of this.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver);
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const Driver& driver_;
  const bool fresh_;  ///< no other one of this thread lives
  int mode_ = 2;      ///< CU_STREAM_CAPTURE_MODE_RELAXED, then what it was
};

/// Makes a context current on the calling thread while this object lives.  The destructor brings the previous context
/// back.  Where the context is current already, neither calls the driver.  For calls that put work on streams.
class StreamContextScope {
 public:
  StreamContextScope(const Driver& driver, Context context);
  ~StreamContextScope();
  StreamContextScope(const StreamContextScope&) = delete;
  StreamContextScope& operator=(const StreamContextScope&) = delete;

 private:
  const Driver& driver_;
  Context outer_;  ///< what this thread's scope outside of this one has made current
  bool pushed_ = false;
};

/// The same for all calls: captures elsewhere are no concern of them (RelaxedCapture).
class CurrentContext {
 public:
  CurrentContext(const Driver& driver, Context context) : relaxed_(driver), scope_(driver, context) {}

 private:
  const RelaxedCapture relaxed_;
  const StreamContextScope scope_;
};

}  // namespace hvd::cuda

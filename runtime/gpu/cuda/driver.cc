#include "gpu/cuda/driver.h"

#include <dlfcn.h>

#include <cstdlib>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "options/variable.h"

namespace hvd::cuda {
namespace {

constexpr int oldest_version = 11040;  ///< has cuDeviceGetUuid_v2
constexpr int no_device = 100;

struct DriverLookup {
  std::unique_ptr<Driver> driver;
  std::string why;
};

std::string name_of_version(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// Fills the table.  Returns an empty text, or the first symbol that the library lacks.
std::string find_symbols(Driver& d, void* library) {
#define HVD_CUDA_FIND(member, symbol, arguments)                           \
  d.member = reinterpret_cast<decltype(d.member)>(dlsym(library, symbol)); \
  if (!d.member) return symbol;
  HVD_CUDA_FUNCTIONS(HVD_CUDA_FIND)
#undef HVD_CUDA_FIND
  d.function_load = reinterpret_cast<decltype(d.function_load)>(dlsym(library, "cuFuncLoad"));
  d.stream_id = reinterpret_cast<decltype(d.stream_id)>(dlsym(library, "cuStreamGetId"));
  d.context_record = reinterpret_cast<decltype(d.context_record)>(dlsym(library, "cuCtxRecordEvent"));
  return {};
}

DriverLookup open() {
  const char* named = options::value_of("HVD_CUDA_LIBRARY");
  const char* path = named ? named : "libcuda.so.1";
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return {nullptr, std::string("no CUDA driver: ") + dlerror()};
  auto d = std::make_unique<Driver>();
  d->path = path;
  if (const std::string absent = find_symbols(*d, library); !absent.empty())
    return {nullptr, std::string(path) + " lacks " + absent + ": a CUDA driver of 11.4 or later is needed"};
  if (const int code = d->driver_version(&d->version); code != success)
    return {nullptr, "cuDriverGetVersion: " + d->text(code)};
  if (d->version < oldest_version)
    return {nullptr, "the CUDA driver is for " + name_of_version(d->version) + ", 11.4 or later is needed"};
  if (const int code = d->init(0); code != success)
    return {nullptr, code == no_device ? "the CUDA driver sees no GPU" : "cuInit: " + d->text(code)};
  if (const int code = d->device_count(&d->devices); code != success)
    return {nullptr, "cuDeviceGetCount: " + d->text(code)};
  if (d->devices == 0) return {nullptr, "the CUDA driver sees no GPU"};
  return {std::move(d), {}};
}

const DriverLookup& opened() {
  // Never destroyed: the runtime shuts down in an exit handler.  Objects that are made after the handler's registration
  // are destroyed before the handler runs.
  static const DriverLookup& once = *new DriverLookup(open());
  return once;
}

}  // namespace

const Driver* Driver::get() { return opened().driver.get(); }
std::string Driver::why_not() { return opened().why; }

std::string Driver::text(int code) const {
  const char* text = nullptr;
  if (error_text && error_text(code, &text) == success && text) return text;
  return "error " + std::to_string(code);
}

void Driver::check(int code, const char* what) const {
  if (code == success) return;
  throw Error(Code::unavailable, what, text(code),
              code == 2 ? "the GPU's memory is full: other processes may use it too (nvidia-smi)" : "");
}

bool Driver::capturing(Stream stream) const {
  // Gpu::mark() detects a capture of the context.
  if (stream == whole_context) return false;
  // CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, for the default stream: a stream that synchronizes with that stream is being
  // captured.
  constexpr int implicit = 906;
  int status = 0;
  const int code = is_capturing(stream, &status);
  if (code == implicit) return true;
  check(code, "cuStreamIsCapturing");
  return status != 0;
}

namespace {

/// The effects of the scopes that live on this thread.
struct ThreadScopes {
  Context current = nullptr;  ///< the context that the innermost scope has made, or found, current
  bool relaxed = false;
  bool keeps = false;  ///< keep_context() was called
};
thread_local ThreadScopes scopes;

}  // namespace

void keep_context() { scopes.keeps = true; }

RelaxedCapture::RelaxedCapture(const Driver& driver) : driver_(driver), fresh_(!scopes.relaxed) {
  if (!fresh_) return;
  driver_.exchange_mode(&mode_);
  scopes.relaxed = true;
}

RelaxedCapture::~RelaxedCapture() {
  if (!fresh_ || scopes.keeps) return;
  driver_.exchange_mode(&mode_);
  scopes.relaxed = false;
}

StreamContextScope::StreamContextScope(const Driver& driver, Context context)
    : driver_(driver), outer_(scopes.current) {
  if (outer_ == context) return;
  Context found = nullptr;
  if (driver_.get_current(&found) != success || found != context) {
    driver_.check(driver_.push(context), "cuCtxPushCurrent");
    pushed_ = true;
  }
  scopes.current = context;
}

StreamContextScope::~StreamContextScope() {
  if (scopes.keeps && !outer_) return;
  scopes.current = outer_;
  Context was = nullptr;
  if (pushed_) driver_.pop(&was);
}

}  // namespace hvd::cuda

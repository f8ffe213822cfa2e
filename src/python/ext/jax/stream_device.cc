#include "stream_device.h"

#include <cstdint>

#include "../bridge/cuda_library.h"

namespace hvd::jax::gpu {

namespace {

/// Each returns 0 on success.
struct StreamDriver {
  int (*context_of)(void* stream, void** context) = nullptr;
  int (*push)(void* context) = nullptr;
  int (*pop)(void** context) = nullptr;
  int (*device)(int* ordinal) = nullptr;
  int (*copy)(std::uintptr_t to, std::uintptr_t from, std::size_t bytes, void* stream) = nullptr;
  bool whole = false;
};

const StreamDriver& driver() {
  static const StreamDriver found = [] {
    StreamDriver d;
    const char* why = "";
    void* const library = bridge::cuda_library(&why);
    const auto find = [library](const char* name, void* slot) { return bridge::find_symbol(library, name, slot); };
    d.whole = find("cuStreamGetCtx", &d.context_of) && find("cuCtxPushCurrent_v2", &d.push) &&
              find("cuCtxPopCurrent_v2", &d.pop) && find("cuCtxGetDevice", &d.device) &&
              find("cuMemcpyDtoDAsync_v2", &d.copy);
    return d;
  }();
  return found;
}

/// Makes the stream's context current on this thread during its lifetime: XLA may not have done so.
class InContext {
 public:
  explicit InContext(void* stream) {
    void* context = nullptr;
    well_ = driver().whole && driver().context_of(stream, &context) == 0 && driver().push(context) == 0;
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
  ~InContext() {
    void* context = nullptr;
    if (well_) driver().pop(&context);
  }
  explicit operator bool() const { return well_; }

 private:
  bool well_ = false;
};

}  // namespace

int ordinal_of(void* stream) {
  const InContext in(stream);
  int ordinal = -1;
  return in && driver().device(&ordinal) == 0 ? ordinal : -1;
}

std::string copy(void* to, const void* from, std::size_t bytes, void* stream) {
  const InContext in(stream);
  if (!in) return "CUDA's driver does not know the stream of the program";
  const int code =
      driver().copy(reinterpret_cast<std::uintptr_t>(to), reinterpret_cast<std::uintptr_t>(from), bytes, stream);
  return code == 0 ? "" : "a copy on the GPU failed: CUDA error " + std::to_string(code);
}

}  // namespace hvd::jax::gpu

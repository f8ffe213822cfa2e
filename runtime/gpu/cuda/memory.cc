#include "gpu/cuda/memory.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <type_traits>

namespace hvd::cuda {
namespace {

class DriverMemory final : public MemorySource {
 public:
  explicit DriverMemory(const Driver& driver) : driver_(driver) {}
  int allocate(Pointer* address, std::size_t bytes, int, Stream) const override {
    return driver_.mem_alloc(address, bytes);
  }
  void free(Pointer address) const override { driver_.mem_free(address); }
  bool full(int code) const override { return code == 2; }
  std::string text(int code) const override { return driver_.text(code); }
  bool keeps() const override { return false; }

 private:
  const Driver& driver_;
};

/// Declared in torch/csrc/inductor/aoti_torch/c/shim.h; 0 is success.  A block belongs to the stream that is current at
/// its allocation.  So a guard makes the runtime's stream current on this thread.  torch puts a block into a graph's
/// own pool only for streams of the capture (CUDAGraph::capture_begin).  The runtime's stream is never part of a
/// capture.
struct TorchFunctions {
  int (*allocate)(std::uint64_t bytes, void** address) = nullptr;
  int (*free)(void* address) = nullptr;
  int (*guard)(void* stream, std::int32_t device, void** guard) = nullptr;
  int (*unguard)(void* guard) = nullptr;
  const char* (*what)() = nullptr;  ///< text of the thread's last failure; nullptr: this torch lacks the function
};

/// True once the process exits: then torch's allocator may be destroyed, and the memory is not needed any more.
std::atomic<bool> gone{false};

class TorchMemory final : public MemorySource {
 public:
  explicit TorchMemory(const TorchFunctions& f) : f_(f) {}
  int allocate(Pointer* address, std::size_t bytes, int ordinal, Stream stream) const override {
    void *guard = nullptr, *block = nullptr;
    if (gone.load() || f_.guard(stream, ordinal, &guard) != 0) return failed;
    const int code = f_.allocate(bytes, &block);
    const std::string why = code == 0 || !f_.what ? "" : f_.what();
    f_.unguard(guard);
    last_failure = why;
    *address = reinterpret_cast<Pointer>(block);
    return code == 0 && block ? success : failed;
  }
  void free(Pointer address) const override {
    if (!gone.load()) f_.free(reinterpret_cast<void*>(address));
  }
  bool full(int code) const override { return code != success; }
  std::string text(int) const override {
    return last_failure.empty() ? "torch's allocator has no more" : "torch: " + last_failure;
  }
  bool keeps() const override { return true; }

 private:
  static constexpr int failed = 1;
  static thread_local std::string last_failure;
  const TorchFunctions f_;
};
thread_local std::string TorchMemory::last_failure;

struct Torch {
  const MemorySource* source = nullptr;
  std::string why;
};

/// Looks up torch's functions, if torch was built for CUDA and has been imported.  Does not load the library.
Torch find_torch() {
  void* library = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
  if (!library) return {nullptr, "libtorch_cuda.so is not loaded in this process"};
  TorchFunctions f;
  auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  if (!find(f.allocate, "aoti_torch_cuda_caching_allocator_raw_alloc") ||
      !find(f.free, "aoti_torch_cuda_caching_allocator_raw_delete") ||
      !find(f.guard, "aoti_torch_create_cuda_stream_guard") || !find(f.unguard, "aoti_torch_delete_cuda_stream_guard"))
    return {nullptr, "this torch does not offer its allocator to C (2.15 does)"};
  find(f.what, "torch_exception_get_what_without_backtrace");
  // Registered after torch's exit handlers, so this handler runs before them.
  std::atexit([] { gone.store(true); });
  // Never destroyed: blocks of the source may come back at any time.
  return {new TorchMemory(f), ""};
}

std::atomic<bool> allowed{true};
std::atomic<const MemorySource*> chosen{nullptr};

const MemorySource& driver_memory(const Driver& driver) {
  // The process has one driver.
  static const MemorySource& memory = *new DriverMemory(driver);
  return memory;
}

}  // namespace

const MemorySource& memory_source(const Driver& driver) {
  const MemorySource* torch = allowed.load() ? chosen.load() : nullptr;
  return torch ? *torch : driver_memory(driver);
}

bool use_torch_memory(std::string& why) {
  static const Torch& torch = *new Torch(find_torch());
  why = allowed.load() ? torch.why : "HVD_TORCH_MEMORY is 0";
  if (torch.source) chosen.store(torch.source);
  return allowed.load() && torch.source;
}

void allow_torch_memory(bool yes) { allowed.store(yes); }

}  // namespace hvd::cuda

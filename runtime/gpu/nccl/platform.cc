/// @file platform.cc — implements the interface of gpu/device.h with CUDA and NCCL.
#include "base/error.h"
#include "gpu/cuda/gpu.h"
#include "gpu/device.h"
#include "gpu/nccl/communicator/library.h"
#include "gpu/nccl/communicator/registered_memory.h"
#include "gpu/nccl/nccl_device.h"

namespace hvd::gpu {
namespace {

class NcclPlatform final : public Platform {
 public:
  LocalGpu& at(int ordinal) override { return cuda::Gpu::at(ordinal); }
  std::unique_ptr<SetDevice> open(SetContext context, std::unique_ptr<DeviceInheritance> inherited) override {
    return std::make_unique<nccl::NcclDevice>(
        std::move(context), std::unique_ptr<nccl::InheritedGpu>(static_cast<nccl::InheritedGpu*>(inherited.release())));
  }
  bool free_result(void* result) override { return cuda::free_anywhere(result); }
  void* take_registered(int ordinal, std::size_t bytes) override {
    const nccl::Library* library = nccl::Library::get();
    if (!library) throw Error(Code::unavailable, "hvd_gpu_alloc", nccl::Library::why_not());
    return nccl::RegisteredMemory::process().take(*library, cuda::Gpu::at(ordinal), bytes).data;
  }
  void give_back_registered(void* data, int ordinal, StreamHandle stream) override {
    cuda::Gpu& gpu = cuda::Gpu::at(ordinal);
    const cuda::CurrentContext current(gpu.driver(), gpu.context());
    nccl::RegisteredMemory::process().give_back(data, gpu.mark(static_cast<cuda::Stream>(stream)));
  }
  int version(std::string_view what) const override {
    if (what == "kernels") return cuda::kernel_image() ? 1 : 0;
    const cuda::Driver* driver = cuda::Driver::get();
    if (!driver) return 0;
    if (what == "cuda") return driver->version;
    const nccl::Library* library = what == "nccl" ? nccl::Library::get() : nullptr;
    return library ? library->version : 0;
  }
  bool use_torch_memory(std::string& why) override { return cuda::use_torch_memory(why); }
  void allow_torch_memory(bool allowed) override { cuda::allow_torch_memory(allowed); }
  void keep_thread() override { cuda::keep_context(); }
};

}  // namespace

Platform& platform() {
  static NcclPlatform only;
  return only;
}

}  // namespace hvd::gpu

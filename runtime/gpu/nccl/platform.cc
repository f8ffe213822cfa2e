/// @file platform.cc — implements the interface of gpu/device.h with CUDA and NCCL.
#include "gpu/cuda/gpu.h"
#include "gpu/device.h"
#include "gpu/nccl/communicator/library.h"
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

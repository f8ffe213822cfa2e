#include "gpu/cuda/gpu.h"

#if defined(HVD_WITH_KERNELS)
extern "C" const unsigned char hvd_kernel_image[];
#endif

namespace hvd::cuda {

const void* kernel_image() {
#if defined(HVD_WITH_KERNELS)
  return hvd_kernel_image;
#else
  return nullptr;
#endif
}

}  // namespace hvd::cuda

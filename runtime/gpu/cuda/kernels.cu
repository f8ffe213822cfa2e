/// @file kernels.cu — the device entries of the functions in kernels.h.  One fatbin serves all architectures.
#include "gpu/cuda/kernels.h"

using namespace hvd::cuda;

#define HVD_PLACE blockIdx.x, gridDim.x, threadIdx.x, blockDim.x

extern "C" __global__ void __launch_bounds__(block_threads)
    hvd_gather(const __grid_constant__ Table table, unsigned char* buffer) {
  copy_tiles<true>(table, buffer, HVD_PLACE);
}
extern "C" __global__ void __launch_bounds__(block_threads)
    hvd_scatter(const __grid_constant__ Table table, unsigned char* buffer) {
  copy_tiles<false>(table, buffer, HVD_PLACE);
}
extern "C" __global__ void __launch_bounds__(block_threads)
    hvd_hash(const __grid_constant__ Table table, unsigned char* sums) {
  hash_tiles(table, sums, HVD_PLACE);
}

#define HVD_ENTRY(T, B)                                                                                  \
  extern "C" __global__ void __launch_bounds__(block_threads)                                            \
      hvd_gather_##T##_##B(const __grid_constant__ Table table, unsigned char* buffer, double factor) {  \
    scale_tiles<true, hvd::element::T, hvd::element::B>(table, buffer, factor, HVD_PLACE);               \
  }                                                                                                      \
  extern "C" __global__ void __launch_bounds__(block_threads)                                            \
      hvd_scatter_##T##_##B(const __grid_constant__ Table table, unsigned char* buffer, double factor) { \
    scale_tiles<false, hvd::element::T, hvd::element::B>(table, buffer, factor, HVD_PLACE);              \
  }
HVD_SCALE_KERNELS(HVD_ENTRY)

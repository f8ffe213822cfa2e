/// @file host_device.h — HVD_BOTH: a function for the host and, where nvcc compiles it, for the GPU.
///
/// Static: it is compiled for each instruction set of the host, and code for one must not be picked for another.
#pragma once

#if defined(__CUDACC__)
#define HVD_BOTH static __host__ __device__ inline
#else
#define HVD_BOTH static inline
#endif

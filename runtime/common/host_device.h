/// @file host_device.h — HVD_BOTH marks a function for the host, and also for the GPU if nvcc compiles it.
///
/// Such functions are static.  The build compiles them once for each instruction set of the host.  The linker must not
/// merge these versions.
#pragma once

#if defined(__CUDACC__)
#define HVD_BOTH static __host__ __device__ inline
#else
#define HVD_BOTH static inline
#endif

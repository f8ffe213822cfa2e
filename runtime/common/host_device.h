/// @file host_device.h — HVD_BOTH marks a function for the host, and also for the GPU if nvcc compiles it.
///
/// Such functions are static.  The build compiles them once for each instruction set of the host, and the linker must
/// not replace the code for one by the code for another.
#pragma once

#if defined(__CUDACC__)
#define HVD_BOTH static __host__ __device__ inline
#else
#define HVD_BOTH static inline
#endif

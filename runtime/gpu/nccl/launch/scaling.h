/// @file scaling.h — what of an operation NCCL can do, and how its sums are scaled and widened.
#pragma once
#include "gpu/device_tensor.h"
#include "gpu/nccl/communicator/library.h"

namespace hvd::nccl {

using gpu::Capabilities;
using gpu::DeviceTensor;

/// How a sum is scaled.  A pure function of what all ranks agree on: they must call NCCL alike.
struct Scaling {
  double gather = 1, scatter = 1;  ///< by our kernels, while packing and unpacking
  double inside = 1;               ///< by NCCL
  bool none() const { return gather == 1 && scatter == 1; }
};

/// @param packed  the tensor goes through the fusion buffer anyway
Scaling scaling_of(const DeviceTensor& t, int size, const Capabilities& capabilities, bool packed);

/// 8-bit floats.  NCCL rounds what it adds up to 8 bits whenever it goes on to the next rank, so that of many numbers'
/// sum little is right, and makes 448 (57344) of what is larger.  So our kernels widen them to f32, with four times the
/// traffic: the sum is rounded once, as on the host, and nothing saturates.  Without our kernels, or where
/// HVD_NCCL_FLOAT8=1 asks for it, NCCL does it its own way if all ranks' can (2.24 and later, compute capability 9.0:
/// NVIDIA's ncclDataType_t), but only without factors, which it would keep in 8 bits.  What is left goes through host
/// memory.
inline bool reduced_in_8_bits(const DeviceTensor& t, const Capabilities& capabilities) {
  return capabilities.float8 && is_float8(t.dtype) && t.before == 1 && t.after == 1 && t.reduce != Reduce::average;
}

/// Sums of it are made in f32.
inline bool widened(const DeviceTensor& t, const Capabilities& capabilities) {
  if (is_float8(t.dtype)) return capabilities.kernels && !reduced_in_8_bits(t, capabilities);
  return capabilities.wide && is_narrow_float(t.dtype);
}

}  // namespace hvd::nccl

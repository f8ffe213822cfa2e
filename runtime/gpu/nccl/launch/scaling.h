/// @file scaling.h — the operations that NCCL can do, and how their sums are scaled and widened.
#pragma once
#include "gpu/device_tensor.h"
#include "gpu/nccl/communicator/library.h"

namespace hvd::nccl {

using gpu::Capabilities;
using gpu::DeviceTensor;

/// The factors of a sum.  Depends only on facts that all ranks agree on, since all ranks must make the same NCCL calls.
struct Scaling {
  double gather = 1, scatter = 1;  ///< applied by the runtime's kernels while they pack and unpack
  double inside = 1;               ///< applied by NCCL
  bool none() const { return gather == 1 && scatter == 1; }
};

/// @param packed  the tensor goes through the fusion buffer in any case
Scaling scaling_of(const DeviceTensor& t, int size, const Capabilities& capabilities, bool packed);

/// Returns whether NCCL sums this tensor of 8-bit floats in 8 bits.
///
/// NCCL rounds partial sums to 8 bits on each rank.  So the sum of many numbers is inexact, and larger sums saturate at
/// 448 (e4m3) or 57344 (e5m2).  Therefore the runtime's kernels widen 8-bit floats to f32, with four times the traffic.
/// Then the sum is rounded once, as on the host, and does not saturate.  NCCL's own 8-bit sums are used without the
/// runtime's kernels, or with HVD_NCCL_FLOAT8=1.  All ranks' NCCL must have such sums: version 2.24 or later, and
/// compute capability 9.0 (NVIDIA's ncclDataType_t).  The operation must have no factors, which NCCL would keep in 8
/// bits.  Sums that allow neither way go through host memory.
inline bool reduced_in_8_bits(const DeviceTensor& t, const Capabilities& capabilities) {
  return capabilities.float8 && is_float8(t.dtype) && t.before == 1 && t.after == 1 && t.reduce != Reduce::average;
}

/// Returns whether the tensor is summed in f32.
inline bool widened(const DeviceTensor& t, const Capabilities& capabilities) {
  if (is_float8(t.dtype)) return capabilities.kernels && !reduced_in_8_bits(t, capabilities);
  return capabilities.wide && is_narrow_float(t.dtype);
}

}  // namespace hvd::nccl

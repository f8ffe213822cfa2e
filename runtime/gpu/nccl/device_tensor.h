/// @file device_tensor.h — one operation on device memory, as the NCCL backend sees it, and what of it NCCL can do.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "common/types.h"
#include "gpu/cuda/gpu.h"
#include "gpu/nccl/library.h"

namespace hvd::nccl {

/// What all ranks have agreed to use; decided once for each process set.
struct Capabilities {
  bool kernels = false;  ///< all ranks can launch ours
  bool wide = false;     ///< sums of f16 and bf16 are made in f32: rounded once, twice the traffic
  bool float8 = false;   ///< those of 8-bit floats by NCCL in 8 bits, see reduced_in_8_bits()
};

struct DeviceTensor {
  Kind kind = Kind::allreduce;
  DType dtype = DType::f32;
  Reduce reduce = Reduce::sum;
  double before = 1, after = 1;
  int root = 0;                              ///< broadcast
  std::size_t row_bytes = 0;                 ///< allreduce, broadcast: of the whole tensor
  std::int64_t rows = 1;                     ///< allgather, alltoall: of this rank; reducescatter: of the whole
  std::vector<std::int64_t> sent, received;  ///< allgather: received; alltoall: both; [size] rows for and of each rank
  const void* in = nullptr;
  void* out = nullptr;                ///< allreduce, broadcast
  bool absent = false;                ///< this rank has joined: zeros, and nobody wants the result
  cuda::Pointer result = 0;           ///< allgather, alltoall, reducescatter: made here, then the caller's
  std::shared_ptr<cuda::Mark> ready;  ///< `in` and `out` may be used; nullptr: now.  Of a set's, in order
  cuda::Stream stream = nullptr;      ///< on which that is recorded

  std::size_t bytes() const { return static_cast<std::size_t>(rows) * row_bytes; }
  std::size_t elements() const { return bytes() / element_bytes(dtype); }
};

/// How a sum is scaled.  A pure function of what all ranks agree on: they must call NCCL alike.
struct Scaling {
  double gather = 1, scatter = 1;  ///< by our kernels, while packing and unpacking
  double inside = 1;               ///< by NCCL
  bool none() const { return gather == 1 && scatter == 1; }
};

/// @param packed  the tensor goes through the fusion buffer anyway
Scaling scaling_of(const DeviceTensor& t, int size, const Capabilities& capabilities, bool packed);

/// Whether NCCL (and our kernels) can do it; else it goes through host memory.
bool possible(const DeviceTensor& t, int size, const Capabilities& capabilities);

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

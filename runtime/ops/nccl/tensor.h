/// @file tensor.h — one operation on device memory, as the NCCL backend sees it, and what of it NCCL can do.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "common/types.h"
#include "cuda/gpu.h"
#include "ops/nccl/library.h"

namespace hvd::nccl {

/// What all ranks have agreed to use; decided once for each process set.
struct Means {
  bool kernels = false;  ///< all ranks can launch ours
  bool wide = false;     ///< sums of f16 and bf16 are made in f32: rounded once, twice the traffic
};

struct Tensor {
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
  std::shared_ptr<cuda::Mark> ready;  ///< `in` and `out` may be used; nullptr: now

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
Scaling scaling_of(const Tensor& t, int size, const Means& means, bool packed);

/// Whether NCCL (and our kernels) can do it; else it goes through host memory.
bool possible(const Tensor& t, int size, const Means& means);

/// Sums of it are made in f32.
inline bool widened(const Tensor& t, const Means& means) {
  return means.wide && (t.dtype == DType::f16 || t.dtype == DType::bf16);
}

}  // namespace hvd::nccl

/// @file cpu_kernels.h — arithmetic on memory: reduce, scale, copy.  Picked once per CPU.
#pragma once
#include <cstddef>

#include "common/types.h"

namespace hvd::ops {

/// What is done to each element besides reducing it.
struct Scale {
  double before = 1;                ///< multiplies every input
  double after = 1;                 ///< multiplies the result
  int divisor = 1;                  ///< then it is divided by this: the ranks, for Average
  const double* weights = nullptr;  ///< [n] one more factor for each input; floating-point sums only
  bool plain() const { return before == 1 && after == 1 && divisor == 1 && !weights; }
};

/// dst[i] = scale(src[0][i] op src[1][i] op …), in this order.  src: [n][count], n >= 1; dst may be one of them.
/// f16, bf16 and 8-bit floats are accumulated in f32 and rounded once; 8- and 16-bit integers in 32 bits, 32-bit ones
/// in 64. Integers divide and truncate.  bool: any element that is not 0 counts as 1.
using ReduceFn = void (*)(const void* const* src, int n, void* dst, std::size_t count, const Scale& scale);

/// A reduction in steps, for parts that travel in between: not rounded, and not wrapped, before the end.
struct WideReduce {
  std::size_t element_bytes = 0;  ///< of a part's element; 0: this dtype loses nothing when parts have it too
  ReduceFn part = nullptr;        ///< src: the dtype, dst: wide; only `before` is applied
  ReduceFn parts = nullptr;       ///< src: wide, dst: wide; nothing is applied
  ReduceFn whole = nullptr;       ///< src: wide, dst: the dtype; only `after` and `divisor` are applied
};
/// What is made of f16, bf16 and 8-bit floats (in f32), and what is made of narrower integers than 64 bits (in 32 and
/// 64).
WideReduce wide_reducer(DType dtype, Reduce reduce);

/// nullptr for Adasum, which is not one pass.  Average is Sum with a divisor.
ReduceFn reducer(DType dtype, Reduce reduce);

/// The dot products of all pairs of n vectors, in double.  sums: [n * (n + 1) / 2][8], pair (i, j >= i) at
/// i * n - i * (i - 1) / 2 + j - i; element e of this call goes to sum e % 8, so that vectors may come in pieces of
/// whole lines of 64 bytes without changing a bit.  scratch: [n][dot_block].
using DotsFn = void (*)(const void* const* src, int n, std::size_t count, double* sums, double* scratch);
inline constexpr std::size_t dot_block = 64;

/// nullptr for what is not floating point.
DotsFn dots(DType dtype);

/// Copies past the caches.  Call store_fence() before a flag publishes what was written.
void copy_streaming(void* dst, const void* src, std::size_t bytes);
void store_fence();

}  // namespace hvd::ops

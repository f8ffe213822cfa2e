/// @file cpu_kernels.h — reductions, dot products and copies in memory, with the best instruction set of the CPU.
#pragma once
#include <cstddef>

#include "common/types.h"
#include "ops/kernels/slice_hash.h"

namespace hvd::ops {

/// The factors that a reduction applies to each element.
struct Scale {
  double before = 1;                ///< multiplies every input
  double after = 1;                 ///< multiplies the result
  int divisor = 1;                  ///< divides the result; for Average, the number of ranks
  const double* weights = nullptr;  ///< [n] another factor for each input, in floating-point sums only; nullptr: none
  /// No factor changes a value.
  bool plain() const { return before == 1 && after == 1 && divisor == 1 && !weights; }
};

/// dst[i] = scale(src[0][i] op src[1][i] op …), in this order.  src: [n][count], n >= 1; dst may be one of the sources.
/// f16, bf16 and 8-bit floats are accumulated in f32 and rounded once.  8- and 16-bit integers are accumulated in 32
/// bits, 32-bit integers in 64.  A division of integers truncates.  bool: every element that is not 0 counts as 1.
using ReduceFn = void (*)(const void* const* src, int n, void* dst, std::size_t count, const Scale& scale);

/// A reduction in steps, with parts of a wider type that travel between the steps.  Only the last step rounds or wraps.
struct WideReduce {
  std::size_t element_bytes = 0;  ///< of a part's element; 0: no wider type is needed, the functions are null
  ReduceFn part = nullptr;        ///< src: the dtype, dst: wide; applies only `before` and `weights`
  ReduceFn parts = nullptr;       ///< src: wide, dst: wide; give a plain() scale
  ReduceFn whole = nullptr;       ///< src: wide, dst: the dtype; applies only `after` and `divisor`
};
/// Parts of f16, bf16 and 8-bit floats are f32.  Parts of 8- and 16-bit integers have 32 bits, of 32-bit integers 64.
/// Every other dtype, and Adasum, gets element_bytes 0.
WideReduce wide_reducer(DType dtype, Reduce reduce);

/// nullptr for Adasum, which needs two passes.  Average is Sum with a divisor.
ReduceFn reducer(DType dtype, Reduce reduce);

/// Adds to `sums` the dot products of all pairs of n vectors, in double.  src: [n][count].  scratch: [n][dot_block].
/// sums: [n * (n + 1) / 2][8]; the pair (i, j >= i) has the index i * n - i * (i - 1) / 2 + j - i.  Its product is the
/// total of 8 sums.  Element e of this call goes to sum e % 8.  So the bits are the same if a caller gives the vectors
/// in pieces.  Each piece except the last must be a multiple of 64 bytes.
using DotsFn = void (*)(const void* const* src, int n, std::size_t count, double* sums, double* scratch);
inline constexpr std::size_t dot_block = 64;

/// nullptr for a dtype that is not floating point.
DotsFn dots(DType dtype);

/// The index of the first of @p count elements that is NaN or infinite; @p count: there is none.
using FirstNotFiniteFn = std::size_t (*)(const void* elements, std::size_t count);
/// nullptr for integers, bool, opaque bytes and 8-bit floats.  A complex number counts as two elements.
FirstNotFiniteFn first_not_finite(DType dtype);

/// The part of slice_hash() for whole KiB.
HashBlocksFn hash_blocks();

/// Copies with stores that bypass the caches.  Call store_fence() before you set a flag that publishes the copy.
void copy_streaming(void* dst, const void* src, std::size_t bytes);
void store_fence();

}  // namespace hvd::ops

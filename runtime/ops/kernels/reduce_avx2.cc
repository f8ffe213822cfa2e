/// @file reduce_avx2.cc — the reductions for x86-64 with AVX2 and F16C; compiled with those flags.
#include "ops/kernels/hash_blocks.inc"
#include "ops/kernels/reduce.inc"

namespace hvd::ops {
ReduceFn reducer_avx2(DType d, Reduce r) { return pick(d, r); }
WideReduce wide_reducer_avx2(DType d, Reduce r) { return pick_wide(d, r); }
DotsFn dots_avx2(DType d) { return pick_dots(d); }
FirstNotFiniteFn first_not_finite_avx2(DType d) { return pick_first_not_finite(d); }
HashBlocksFn hash_blocks_avx2() { return take_blocks; }
}  // namespace hvd::ops

/// @file reduce_baseline.cc — the reductions for every CPU of the architecture.
#include "ops/kernels/hash_blocks.inc"
#include "ops/kernels/reduce.inc"

namespace hvd::ops {
ReduceFn reducer_baseline(DType d, Reduce r) { return pick(d, r); }
WideReduce wide_reducer_baseline(DType d, Reduce r) { return pick_wide(d, r); }
DotsFn dots_baseline(DType d) { return pick_dots(d); }
FirstNotFiniteFn first_not_finite_baseline(DType d) { return pick_first_not_finite(d); }
HashBlocksFn hash_blocks_baseline() { return take_blocks; }
}  // namespace hvd::ops

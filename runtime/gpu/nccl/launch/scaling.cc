#include "gpu/nccl/launch/scaling.h"

#include <cmath>

namespace hvd::nccl {
namespace {

bool adds(Reduce r) { return r == Reduce::sum || r == Reduce::average; }

/// Returns whether multiplication by @p x is exact in every floating type, except for overflow.
bool power_of_two(double x) {
  int exponent = 0;
  return std::frexp(std::fabs(x), &exponent) == 0.5;
}

/// The factor after the sum, which includes the division of an average.
double after(const DeviceTensor& t, int size) { return t.reduce == Reduce::average ? t.after / size : t.after; }

}  // namespace

Scaling scaling_of(const DeviceTensor& t, int size, const Capabilities& capabilities, bool packed) {
  const double first = t.before, last = after(t, size);
  if (first == 1 && last == 1) return {};
  if (is_float8(t.dtype)) return {first, last, 1};  // in f32: no overflow, and the host also divides last
  if (!adds(t.reduce) || (first != 1 && last != 1)) return {first, last, 1};
  // One factor before the sum has the same effect, and keeps f16 sums from overflowing midway.
  const double factor = first * last;
  // NCCL stores its factor in the tensor's dtype.  1/3 in bf16 is inexact, and would change every element by the same
  // relative error.
  const bool exact = t.dtype == DType::f32 || t.dtype == DType::f64 || power_of_two(factor);
  if (capabilities.kernels && t.kind == Kind::allreduce && (packed || !exact)) return {factor, 1, 1};
  return {1, 1, factor};
}

}  // namespace hvd::nccl

namespace hvd::gpu {

bool possible(const DeviceTensor& t, int size, const Capabilities& capabilities) {
  using namespace nccl;
  if (t.kind == Kind::broadcast || t.kind == Kind::allgather || t.kind == Kind::alltoall) return true;
  if (t.reduce == Reduce::adasum || type_of(t.dtype) < 0) return false;
  if (is_float8(t.dtype)) return reduced_in_8_bits(t, capabilities) || widened(t, capabilities);
  const Scaling scaling = scaling_of(t, size, capabilities, false);
  if (scaling.none() && scaling.inside == 1) return true;
  if (!is_floating(t.dtype)) return false;
  return scaling.none() || (capabilities.kernels && t.kind == Kind::allreduce);
}

}  // namespace hvd::gpu

#include "ops/finite_check.h"

#include <cmath>
#include <cstring>
#include <type_traits>

#include "ops/kernels/cpu_kernels.h"

namespace hvd::ops {
namespace {

bool is_nan(DType dtype, const unsigned char* at) {
  return with_type(part_type(dtype), [at](auto x) {
    if constexpr (std::is_floating_point_v<Wide<decltype(x)>>) {
      std::memcpy(&x, at, sizeof x);
      return std::isnan(wide(x));
    }
    return false;
  });
}

}  // namespace

void FiniteCheck::look(const SumPiece& piece, const void* sum, std::span<const void* const> inputs,
                       std::span<const int> ranks) {
  const FirstNotFiniteFn first = found_ ? nullptr : first_not_finite(piece.sum_dtype);
  if (!first) return;
  const std::size_t parts = is_complex(piece.dtype) ? 2 : 1, count = parts * piece.count, at = first(sum, count);
  if (at == count) [[likely]]
    return;
  if (ranks.empty()) ranks = local_ranks_;
  auto part = [at](const void* elements, DType dtype) {
    return static_cast<const unsigned char*>(elements) + at * element_bytes(part_type(dtype));
  };
  NotFinite& found = found_.emplace();
  found.name = piece.name;
  found.element = piece.element + at / parts;
  found.nan = is_nan(piece.sum_dtype, part(sum, piece.sum_dtype));
  int overwritten = -1;
  for (std::size_t r = 0; r < inputs.size(); ++r) {
    if (inputs[r] == sum)
      overwritten = ranks[r];
    else if (first_not_finite(piece.dtype)(part(inputs[r], piece.dtype), 1) == 0)
      found.ranks.push_back(ranks[r]);
  }
  if (!found.ranks.empty() || inputs.empty()) return;
  if (overwritten < 0)
    found.overflow = true;
  else if (found.nan)
    found.ranks.push_back(overwritten);  // sums of finite numbers are never NaN
  else
    found.perhaps = overwritten;
}

}  // namespace hvd::ops

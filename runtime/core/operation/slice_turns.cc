#include "core/operation/slice_turns.h"

#include <algorithm>

namespace hvd::core {

TensorSlice slice_of(std::size_t bytes, std::uint64_t look, std::uint64_t steps) {
  constexpr std::size_t least_slice = 1 << 10;
  const std::size_t even = (bytes + steps - 1) / steps;
  const std::size_t each = std::max(least_slice, (even + 63) / 64 * 64);
  const std::size_t slices = (bytes + each - 1) / each;
  if (slices == 0) return {};
  const std::size_t begin = look % slices * each;
  return {begin, std::min(bytes, begin + each)};
}

}  // namespace hvd::core

#include "ops/node_order.h"

#include <algorithm>

namespace hvd::ops {
namespace {

constexpr std::size_t order_block_bytes = 16 << 10;  ///< all levels of a block are added while it is in the L1 cache

}  // namespace

std::vector<int> levels_of_order(int n, bool left_to_right) {
  if (left_to_right) return {n};
  std::vector<int> levels;
  for (int p = 2; n > 1; ++p)
    for (; n % p == 0; n /= p) levels.push_back(p);
  return levels;
}

NodeReduce::NodeReduce(const Item& item)
    : parts(item.wide.element_bytes ? item.wide.parts : item.reduce),
      whole(item.wide.element_bytes ? item.wide.whole : item.reduce),
      scale{1, item.scale.after, item.scale.divisor},
      part_bytes(item.wide.element_bytes ? item.wide.element_bytes : item.element_bytes),
      result_bytes(item.element_bytes) {}

void NodeOrder::add_up(const NodeReduce& how, std::span<const int> levels, std::span<unsigned char* const> source,
                       int own, unsigned char* kept, unsigned char* to, std::size_t elements, bool last) {
  const std::size_t step = levels.size() < 2 ? elements : std::max<std::size_t>(1, order_block_bytes / how.part_bytes);
  for (std::size_t done = 0; done < elements; done += step) {
    const std::size_t m = std::min(step, elements - done), at = done * how.part_bytes;
    scratch_.resize(source.size());
    for (std::size_t i = 0; i < source.size(); ++i) scratch_[i] = source[i] + at;
    int count = static_cast<int>(source.size()), mine = own;
    for (std::size_t level = 0; level + 1 < levels.size(); ++level) {
      const int each = levels[level];
      mine = mine < 0 ? -1 : mine / each;
      count /= each;
      for (int g = 0; g < count; ++g) {
        const void** const group = scratch_.data() + static_cast<std::ptrdiff_t>(g) * each;
        void* const sum = g == mine ? kept + at : const_cast<void*>(group[0]);
        how.parts(group, each, sum, m, {});
        scratch_[static_cast<std::size_t>(g)] = sum;
      }
    }
    if (last)
      how.whole(scratch_.data(), count, to + done * how.result_bytes, m, how.scale);
    else
      how.parts(scratch_.data(), count, to + at, m, {});
  }
}

}  // namespace hvd::ops

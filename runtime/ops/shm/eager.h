/// @file eager.h — small tensors: copied to a slot at submit, reduced by everybody from all slots.
///
/// No flag is needed once the batch is published: every rank has filled its slot
/// before it set its ready bit.  Two slots a tensor, by the parity of the round:
/// whoever fills a slot for round k + 2 has seen round k + 1 published, so all
/// ranks have submitted k + 1, so all have read k.
#pragma once
#include "memory/node.h"
#include "ops/stage.h"

namespace hvd::ops {

inline constexpr std::size_t eager_limit = 8 << 10;  ///< bytes a tensor

inline std::size_t slot_stride(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

inline unsigned char* slot(const memory::Node& node, int r, std::size_t offset, std::size_t bytes, unsigned parity) {
  return node.eager(r) + offset + (parity & 1 ? slot_stride(bytes) : 0);
}

/// Reduces bytes [begin, end) of a tensor to @p out.  @p item.in is not read: everybody's input is in the slots.
inline void eager_reduce(const memory::Node& node, const Item& item, std::size_t offset, unsigned parity,
                         std::size_t begin, std::size_t end, unsigned char* out) {
  const void* source[512];
  for (int r = 0; r < node.ranks; ++r) source[r] = slot(node, r, offset, item.bytes, parity) + begin;
  item.reduce(source, node.ranks, out, (end - begin) / item.element_bytes, item.scale);
}

/// All of it, to item.out.
inline void eager_reduce(const memory::Node& node, const Item& item, std::size_t offset, unsigned parity) {
  eager_reduce(node, item, offset, parity, 0, item.bytes, item.out);
}

}  // namespace hvd::ops

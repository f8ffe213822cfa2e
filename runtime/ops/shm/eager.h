/// @file eager.h — allreduce of small tensors: ranks copy them to slots at submit, and each rank reduces all slots.
///
/// Every rank fills its slot before it sets its ready bit.  So a published batch needs no further flag.
///
/// A tensor has two slots on each rank, chosen by the parity of the round.  A rank fills its slot for round k + 2 only
/// after round k + 1 was published.  By then all ranks have submitted round k + 1, so all have read round k.
#pragma once
#include <vector>

#include "memory/node.h"
#include "ops/kernels/cpu_kernels.h"

namespace hvd::ops {

inline constexpr std::size_t eager_limit = 8 << 10;  ///< bytes of the largest eager tensor

/// The addresses of the slots of a node's ranks.  A rank's slots of one parity lie together.  One rank may fill slots
/// of the next round while another rank still reads slots of this round.  So the two parities must not share cache
/// lines.
class EagerSlots {
 public:
  explicit EagerSlots(const memory::Node& node) : source_(static_cast<std::size_t>(node.ranks)) {
    for (int r = 0; r < node.ranks; ++r)
      for (std::size_t parity = 0; parity < 2; ++parity)
        begin_[parity].push_back(node.eager(r) + parity * bytes(node.geometry));
  }
  /// Bytes that all slots of one rank and one parity take together.
  static std::size_t bytes(const memory::Geometry& g) { return g.eager_bytes / 2 / 64 * 64; }

  /// The slot of rank @p r at @p offset bytes.
  unsigned char* at(int r, std::size_t offset, unsigned parity) const {
    return begin_[parity & 1][static_cast<std::size_t>(r)] + offset;
  }
  /// The addresses that the last reduce() has read: [ranks].
  const std::vector<const void*>& sources() const { return source_; }
  /// Reduces the slots of all ranks into @p out: [elements].  All ranks must have filled their slots.  One thread at a
  /// time.
  void reduce(ReduceFn f, const Scale& scale, std::size_t offset, unsigned parity, std::size_t elements, void* out) {
    const std::vector<unsigned char*>& begin = begin_[parity & 1];
    for (std::size_t r = 0; r < source_.size(); ++r) source_[r] = begin[r] + offset;
    f(source_.data(), static_cast<int>(source_.size()), out, elements, scale);
  }

 private:
  std::vector<unsigned char*> begin_[2];  ///< [parity][ranks]
  std::vector<const void*> source_;       ///< [ranks]; scratch of reduce()
};

}  // namespace hvd::ops

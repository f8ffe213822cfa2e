/// @file eager.h — small tensors: copied to a slot at submit, reduced by everybody from all slots.
///
/// No flag is needed once the batch is published: every rank has filled its slot
/// before it set its ready bit.  Two slots a tensor, by the parity of the round:
/// whoever fills a slot for round k + 2 has seen round k + 1 published, so all
/// ranks have submitted k + 1, so all have read k.
#pragma once
#include <vector>

#include "memory/node.h"
#include "ops/kernels/cpu_kernels.h"

namespace hvd::ops {

inline constexpr std::size_t eager_limit = 8 << 10;  ///< bytes a tensor

/// Where the slots of a node's ranks are.  A rank's slots of one parity lie together: one rank may fill tiny tensors of
/// the next round while another still reads those of this one, and they should not share lines.
class EagerSlots {
 public:
  explicit EagerSlots(const memory::Node& node) : source_(static_cast<std::size_t>(node.ranks)) {
    for (int r = 0; r < node.ranks; ++r)
      for (std::size_t parity = 0; parity < 2; ++parity)
        begin_[parity].push_back(node.eager(r) + parity * bytes(node.geometry));
  }
  /// What a rank's slots of one parity take together.
  static std::size_t bytes(const memory::Geometry& g) { return g.eager_bytes / 2 / 64 * 64; }

  unsigned char* at(int r, std::size_t offset, unsigned parity) const {
    return begin_[parity & 1][static_cast<std::size_t>(r)] + offset;
  }
  /// Everybody's input is in the slots.  @p out: [elements].  One thread at a time.
  void reduce(ReduceFn f, const Scale& scale, std::size_t offset, unsigned parity, std::size_t elements, void* out) {
    const std::vector<unsigned char*>& begin = begin_[parity & 1];
    for (std::size_t r = 0; r < source_.size(); ++r) source_[r] = begin[r] + offset;
    f(source_.data(), static_cast<int>(source_.size()), out, elements, scale);
  }

 private:
  std::vector<unsigned char*> begin_[2];  ///< [parity][ranks]
  std::vector<const void*> source_;       ///< [ranks], scratch of reduce()
};

}  // namespace hvd::ops

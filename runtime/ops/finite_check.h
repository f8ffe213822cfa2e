/// @file finite_check.h — finds NaN and infinity in sums, while the sums are in the cache.
///
/// A rank that adds up a piece of a tensor looks for NaN and infinity in the sum.  Where it finds one, it looks at the
/// same element of each rank's input.  So it knows the ranks with such inputs without a message.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/types.h"

namespace hvd::ops {

/// An element of a sum that is NaN or infinite.
struct NotFinite {
  std::string name;         ///< of the operation
  std::size_t element = 0;  ///< in the tensor
  bool nan = false;
  std::vector<int> ranks;  ///< their inputs have a NaN or an infinity there
  int perhaps = -1;        ///< a rank whose input the sum has overwritten, so the cause is uncertain: the input was not
                           ///< finite, or the sum overflowed; -1: none
  bool overflow = false;   ///< the inputs are finite
};

class FiniteCheck {
 public:
  /// @p ranks: of the process set, by local rank.
  explicit FiniteCheck(std::vector<int> ranks) : local_ranks_(std::move(ranks)) {}

  struct SumPiece {
    const std::string& name;
    std::size_t element;  ///< the index in the tensor of the first element
    std::size_t count;    ///< elements
    DType dtype;          ///< of the inputs
    DType sum_dtype;
  };
  /// Looks at @p sum: [piece.count].  @p inputs: [ranks][piece.count]; the sum may have overwritten one of them, at the
  /// same address.  Empty: the inputs are gone.  @p ranks: the rank of each input; empty: the local ranks.
  void look(const SumPiece& piece, const void* sum, std::span<const void* const> inputs,
            std::span<const int> ranks = {});
  /// The first NaN or infinity that look() has found since the last call.
  std::optional<NotFinite> take() { return std::exchange(found_, std::nullopt); }

 private:
  const std::vector<int> local_ranks_;
  std::optional<NotFinite> found_;
};

}  // namespace hvd::ops

/// @file slice_turns.h — which slice of a tensor's result is hashed next, so that ranks can compare it
/// (core/set/result_agreement.h).
///
/// All ranks run the same operations in the same order, so they get the same slices.  The caller holds the engine's
/// drive lock.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/signature.h"
#include "common/tensor_slice.h"

namespace hvd::core {

/// The slice that a tensor of @p bytes bytes gets at look number @p look.  @p steps consecutive looks cover the tensor.
/// A slice has at least 1 KiB, so small tensors need fewer looks.
TensorSlice slice_of(std::size_t bytes, std::uint64_t look, std::uint64_t steps);

/// True if all ranks get the same result.
inline bool same_on_all(const Signature& s) {
  return s.operation() == Kind::allreduce || s.operation() == Kind::broadcast;
}

class SliceTurns {
 public:
  /// @p steps: see slice_of().
  explicit SliceTurns(std::uint64_t steps) : steps_(steps) {}
  /// The slice of the next result of the tensor with this id, which has @p bytes bytes.
  TensorSlice next(std::uint32_t id, std::size_t bytes) {
    if (id >= looks_.size()) looks_.resize(id + 1);
    return slice_of(bytes, looks_[id]++, steps_);
  }
  /// The slice that next() has returned last for this tensor.
  TensorSlice last(std::uint32_t id, std::size_t bytes) const { return slice_of(bytes, looks_[id] - 1, steps_); }

 private:
  const std::uint64_t steps_;
  std::vector<std::uint64_t> looks_;  ///< by id: number of looks
};

}  // namespace hvd::core

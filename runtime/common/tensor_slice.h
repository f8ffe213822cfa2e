/// @file tensor_slice.h — a part of a tensor.
#pragma once
#include <cstddef>

namespace hvd {

/// A part of a tensor, in bytes.
struct TensorSlice {
  std::size_t begin = 0, end = 0;
  std::size_t bytes() const { return end - begin; }
  bool operator==(const TensorSlice&) const = default;
};

}  // namespace hvd

/// @file widened.h — integers that travel between nodes in 64 bits.
///
/// Within a node a sum of narrow integers is formed in wider ones and divided or
/// scaled before it is stored, so that an average never wraps.  Between nodes a
/// node's part would be stored in the tensor's dtype, and wrap.  So such tensors
/// are copied out to 64 bits first, and the result back: the same on one node and
/// on many.
#pragma once
#include <cstdint>
#include <vector>

#include "core/operation.h"
#include "ops/stage.h"

namespace hvd::core {

class Widened {
 public:
  /// An allreduce or reducescatter whose parts must not be stored in the tensor's own dtype.
  static bool needed(const Signature& s);
  /// Copies the input.
  explicit Widened(const Operation& op);
  /// @p narrow for 64-bit integers in this object's memory, which must outlive the stream.
  ops::Item item(ops::Item narrow);
  const Operation& operation() const { return op_; }
  /// Copies the result out: all of it, or some elements.
  void narrow() const { narrow(op_.out, 0, values_.size()); }
  void narrow(void* out, std::size_t first, std::size_t count) const;

 private:
  const Operation& op_;
  std::vector<std::int64_t> values_;
};

}  // namespace hvd::core

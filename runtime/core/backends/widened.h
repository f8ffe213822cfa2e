/// @file widened.h — tensors that are widened as a whole before they travel between nodes.
///
/// Within a node narrow floats are added in f32, narrow integers in wider integers.  Then the result is divided, scaled
/// and stored.  A node's part in the tensor's dtype would lose digits, or wrap.  An allreduce widens parts when they
/// are sent (Item::wide).  A reducescatter widens the whole input before, and narrows the result afterwards.  So the
/// bits are the same on one node and on several.
#pragma once
#include <cstddef>
#include <vector>

#include "core/operation/operation.h"
#include "ops/stage.h"

namespace hvd::core {

class WideCopy {
 public:
  /// True if parts of this reduction must not be stored in the tensor's dtype.
  static bool needed(const Signature& s);
  /// Copies the input.
  explicit WideCopy(const Operation& op);
  /// Returns @p narrow in the wider dtype.  The item's memory belongs to this object, which must outlive the stage.
  ops::Item item(ops::Item narrow);
  const Operation& operation() const { return op_; }
  /// Copies some elements of the result out.
  void narrow(void* out, std::size_t first, std::size_t count) const;

 private:
  const Operation& op_;
  const ops::WideReduce convert_;  ///< with one source: converts to the wider dtype and back
  std::vector<unsigned char> values_;
};

}  // namespace hvd::core

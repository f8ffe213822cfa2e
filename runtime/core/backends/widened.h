/// @file widened.h — tensors that travel between nodes in a wider dtype as a whole.
///
/// Within a node narrow floats are added in f32, and narrow integers in wider ones,
/// before the result is divided, scaled and stored; a node's part stored in the
/// tensor's dtype would lose digits, or wrap.  An allreduce widens parts as they
/// go out (Item::wide).  A reducescatter is widened before and narrowed behind:
/// the same bits on one node and on many.
#pragma once
#include <cstddef>
#include <vector>

#include "core/operation/operation.h"
#include "ops/stage.h"

namespace hvd::core {

class WideCopy {
 public:
  /// Parts of this reduction must not be stored in the tensor's own dtype.
  static bool needed(const Signature& s);
  /// Copies the input.
  explicit WideCopy(const Operation& op);
  /// @p narrow for the wider dtype in this object's memory, which must outlive the stage.
  ops::Item item(ops::Item narrow);
  const Operation& operation() const { return op_; }
  /// Copies some elements of the result out.
  void narrow(void* out, std::size_t first, std::size_t count) const;

 private:
  const Operation& op_;
  const ops::WideReduce convert_;  ///< of one source: the conversion there and back
  std::vector<unsigned char> values_;
};

}  // namespace hvd::core

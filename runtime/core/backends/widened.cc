#include "core/backends/widened.h"

#include "core/operation/name_entry.h"

namespace hvd::core {
namespace {

DType wider(DType d) {
  if (is_narrow_float(d)) return DType::f32;
  return element_bytes(d) == 4 ? DType::i64 : DType::i32;
}

}  // namespace

bool WideCopy::needed(const Signature& s) {
  if (ops::wide_reducer(s.type(), s.reduction()).element_bytes == 0) return false;
  // A negative prescale factor makes unsigned values negative.  In the unsigned dtype, the least would become the
  // greatest.
  const bool ordered = s.reduction() == Reduce::min || s.reduction() == Reduce::max;
  return is_narrow_float(s.type()) || s.reduction() == Reduce::average || s.after != 1 || (ordered && s.before != 1);
}

WideCopy::WideCopy(const Operation& op)
    : op_(op), convert_(ops::wide_reducer(op.entry->signature.type(), op.entry->signature.reduction())) {
  const auto count = static_cast<std::size_t>(op.entry->signature.elements());
  values_.resize(count * convert_.element_bytes);
  convert_.part(&op.in, 1, values_.data(), count, {});
}

ops::Item WideCopy::item(ops::Item narrow) {
  const Signature& s = op_.entry->signature;
  narrow.in = values_.data();
  narrow.out = values_.data();
  narrow.bytes = values_.size();
  narrow.dtype = wider(s.type());
  narrow.element_bytes = convert_.element_bytes;
  narrow.reduce = ops::reducer(wider(s.type()), s.reduction());
  narrow.wide = {};
  return narrow;
}

void WideCopy::narrow(void* out, std::size_t first, std::size_t count) const {
  const void* from = values_.data() + first * convert_.element_bytes;
  convert_.whole(&from, 1, out, count, {});
}

}  // namespace hvd::core

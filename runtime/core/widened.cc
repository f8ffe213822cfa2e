#include "core/widened.h"

#include "core/set.h"

namespace hvd::core {
namespace {

struct Truth {
  std::uint8_t bits;
  Truth() = default;
  explicit Truth(std::int64_t x) : bits(x != 0) {}
  explicit operator std::int64_t() const { return bits != 0; }
};

/// Calls f with a null pointer to the C++ type of an integer dtype of less than 64 bits; false for any other.
template <class F>
bool with_type(DType d, F&& f) {
  switch (d) {
    case DType::u8:
      return f(static_cast<std::uint8_t*>(nullptr)), true;
    case DType::i8:
      return f(static_cast<std::int8_t*>(nullptr)), true;
    case DType::u16:
      return f(static_cast<std::uint16_t*>(nullptr)), true;
    case DType::i16:
      return f(static_cast<std::int16_t*>(nullptr)), true;
    case DType::i32:
      return f(static_cast<std::int32_t*>(nullptr)), true;
    case DType::boolean:
      return f(static_cast<Truth*>(nullptr)), true;
    default:
      return false;
  }
}

}  // namespace

bool Widened::needed(const Signature& s) {
  return (s.reduction() == Reduce::average || s.after != 1) && with_type(s.type(), [](auto*) {});
}

Widened::Widened(const Operation& op) : op_(op) {
  const Signature& s = op.entry->signature;
  values_.resize(static_cast<std::size_t>(s.elements()));
  with_type(s.type(), [&]<class T>(T*) {
    const T* from = static_cast<const T*>(op.in);
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<std::int64_t>(from[i]);
  });
}

ops::Item Widened::item(ops::Item narrow) {
  narrow.in = reinterpret_cast<const unsigned char*>(values_.data());
  narrow.out = reinterpret_cast<unsigned char*>(values_.data());
  narrow.bytes = values_.size() * sizeof(std::int64_t);
  narrow.element_bytes = sizeof(std::int64_t);
  narrow.reduce = ops::reducer(DType::i64, op_.entry->signature.reduction());
  return narrow;
}

void Widened::narrow(void* out, std::size_t first, std::size_t count) const {
  with_type(op_.entry->signature.type(), [&]<class T>(T*) {
    T* to = static_cast<T*>(out);
    for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<T>(values_[first + i]);
  });
}

}  // namespace hvd::core

#include "sums.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "gpu/cuda/kernels.h"

namespace fake {

using namespace hvd::nccl;

std::size_t bytes_of(int type) {
  constexpr std::size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return bytes[type];
}

namespace {

template <class T>
double read(T x) {
  return static_cast<double>(hvd::wide(x));
}
template <class T>
void write(T& to, double x) {
  hvd::narrow(static_cast<decltype(hvd::wide(to))>(x), to);
}

template <class W>
W combine(RedOp op, W a, W b) {
  switch (op) {
    case product:
      return a * b;
    case min:
      return std::min(a, b);
    case max:
      return std::max(a, b);
    default:
      return a + b;
  }
}

template <class T>
void reduce_floats(const std::vector<const void*>& from, void* to, std::size_t count, RedOp op, double factor) {
  for (std::size_t i = 0; i < count; ++i) {
    double total = 0;
    for (std::size_t r = 0; r < from.size(); ++r) {
      T x = static_cast<const T*>(from[r])[i];
      if (factor != 1) write(x, read(x) * factor);
      total = r == 0 ? read(x) : combine(op, total, read(x));
    }
    write(static_cast<T*>(to)[i], total);
  }
}

template <class T>
void reduce_integers(const std::vector<const void*>& from, void* to, std::size_t count, RedOp op) {
  using Total = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  for (std::size_t i = 0; i < count; ++i) {
    Total total = static_cast<const T*>(from[0])[i];
    for (std::size_t r = 1; r < from.size(); ++r) total = combine<Total>(op, total, static_cast<const T*>(from[r])[i]);
    static_cast<T*>(to)[i] = static_cast<T>(total);
  }
}

}  // namespace

void reduce(const std::vector<const void*>& from, void* to, std::size_t count, int type, RedOp op, double factor) {
  switch (type) {
    case 0:
      return reduce_integers<std::int8_t>(from, to, count, op);
    case 1:
      return reduce_integers<std::uint8_t>(from, to, count, op);
    case 2:
      return reduce_integers<std::int32_t>(from, to, count, op);
    case 3:
      return reduce_integers<std::uint32_t>(from, to, count, op);
    case 4:
      return reduce_integers<std::int64_t>(from, to, count, op);
    case 5:
      return reduce_integers<std::uint64_t>(from, to, count, op);
    case 6:
      return reduce_floats<hvd::f16>(from, to, count, op, factor);
    case 7:
      return reduce_floats<float>(from, to, count, op, factor);
    case 8:
      return reduce_floats<double>(from, to, count, op, factor);
    case 9:
      return reduce_floats<hvd::bf16>(from, to, count, op, factor);
    case 10:
      return reduce_floats<hvd::f8e4m3>(from, to, count, op, factor);
    case 11:
      return reduce_floats<hvd::f8e5m2>(from, to, count, op, factor);
    default:
      std::abort();
  }
}

}  // namespace fake

/// @file combine.h — the kernels that reduce what all ranks have sent, for ways that move bytes only (MPI).
///
/// Each element is computed in the order of the ranks, 16-bit floats in 32 bits and rounded once, so the result does
/// not depend on when what came.  Compiled for the device and for the host, like kernels.h.
#pragma once
#include <type_traits>

#include "cuda/kernels.h"

namespace hvd::cuda {

enum class Combine : std::uint32_t { sum, product, min, max };

/// The parts of one stretch of elements.  All begin at multiples of 16 bytes.
struct Parts {
  unsigned char* mine;          ///< this rank's part, and then the result
  const unsigned char* others;  ///< those of the other ranks, one behind the other, in the ranks' order
  std::uint64_t stride;         ///< from one of the others to the next, in bytes, a multiple of 16
  std::uint32_t count, rank;    ///< of all parts; whose `mine` is
  std::uint64_t elements;
};

inline constexpr std::uint64_t tile_combined = 4096;  ///< elements that a block takes at a time

HVD_BOTH std::int8_t wide(std::int8_t x) { return x; }
HVD_BOTH std::uint8_t wide(std::uint8_t x) { return x; }
HVD_BOTH std::int32_t wide(std::int32_t x) { return x; }
HVD_BOTH std::int64_t wide(std::int64_t x) { return x; }
template <class T, class = std::enable_if_t<std::is_integral_v<T>>>
HVD_BOTH void narrow(T x, T& to) {
  to = x;
}

/// Integers wrap; of minimum and maximum a NaN stays.
template <class T>
HVD_BOTH T combined(T a, T b, Combine how) {
  if (how == Combine::min) return b < a || b != b ? b : a;
  if (how == Combine::max) return a < b || b != b ? b : a;
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    const U x = static_cast<U>(a), y = static_cast<U>(b);
    return static_cast<T>(how == Combine::sum ? static_cast<U>(x + y) : static_cast<U>(x * y));
  } else {
    return how == Combine::sum ? a + b : a * b;
  }
}

/// This thread's share; a thread takes 16 bytes of each part at a time.
template <class T>
HVD_BOTH void combine_share(const Parts& p, std::uint64_t begin, std::uint64_t end, Combine how, unsigned thread,
                            unsigned threads) {
  constexpr int n = 16 / static_cast<int>(sizeof(T));
  using Wide = decltype(wide(T{}));
  auto part = [&p](std::uint32_t r) {
    const unsigned char* at = r == p.rank ? p.mine : p.others + (r < p.rank ? r : r - 1) * p.stride;
    return reinterpret_cast<const T*>(at);
  };
  const std::uint64_t whole = begin + (end - begin) / n * n;
  for (std::uint64_t i = begin + thread * n; i < whole; i += std::uint64_t{threads} * n) {
    const auto first = *reinterpret_cast<const Pack<T, n>*>(part(0) + i);
    Wide total[n];
    for (int k = 0; k < n; ++k) total[k] = wide(first.x[k]);
    for (std::uint32_t r = 1; r < p.count; ++r) {
      const auto in = *reinterpret_cast<const Pack<T, n>*>(part(r) + i);
      for (int k = 0; k < n; ++k) total[k] = combined(total[k], static_cast<Wide>(wide(in.x[k])), how);
    }
    Pack<T, n> out;
    for (int k = 0; k < n; ++k) narrow(total[k], out.x[k]);
    *reinterpret_cast<Pack<T, n>*>(reinterpret_cast<T*>(p.mine) + i) = out;
  }
  for (std::uint64_t i = whole + thread; i < end; i += threads) {
    Wide total = wide(part(0)[i]);
    for (std::uint32_t r = 1; r < p.count; ++r) total = combined(total, wide(part(r)[i]), how);
    narrow(total, reinterpret_cast<T*>(p.mine)[i]);
  }
}

template <class T>
HVD_BOTH void combine_tiles(const Parts& p, Combine how, unsigned block, unsigned blocks, unsigned thread,
                            unsigned threads) {
  for (std::uint64_t begin = std::uint64_t{block} * tile_combined; begin < p.elements;
       begin += std::uint64_t{blocks} * tile_combined) {
    const std::uint64_t left = p.elements - begin;
    combine_share<T>(p, begin, begin + (left < tile_combined ? left : tile_combined), how, thread, threads);
  }
}

/// X(type, name): hvd_combine_f16.
#define HVD_COMBINE_KERNELS(X) \
  X(float, f32)                \
  X(double, f64)               \
  X(f16, f16)                  \
  X(bf16, bf16)                \
  X(std::int8_t, i8)           \
  X(std::uint8_t, u8)          \
  X(std::int32_t, i32)         \
  X(std::int64_t, i64)

/// The same order.
enum class Element { f32, f64, f16, bf16, i8, u8, i32, i64 };
inline constexpr std::size_t num_elements = 8;

}  // namespace hvd::cuda

/// @file float8.h — the 8-bit floats of the Open Compute Project, and their conversions to f32 and back.
///
/// Source: OCP 8-bit Floating Point Specification (OFP8), 1.0.  e4m3fn has no infinity; 0x7f and 0xff are NaN; its
/// largest number is 448, its smallest 2^-9.  e5m2 has the layout of f16; its largest number is 57344, its smallest
/// 2^-16.
///
/// Conversions round to the nearest, ties to even.  A number too large for the type becomes infinity, or NaN in e4m3fn.
/// This is the specification's non-saturating mode.  A sum that does not fit must not become 448.  As in f16, a loss
/// scaler or isfinite() must notice it.  ml_dtypes (hence JAX and TensorFlow) casts like this, and so does torch before
/// 2.12.  torch from 2.12 on, and NVIDIA's conversions, return 448.  An average of finite numbers always fits.
///
/// The functions have no branches, so the compiler can vectorize loops over them.  The functions avoid f32's
/// subnormals, which a thread may flush to 0.
#pragma once
#include <cstdint>

#include "common/float16.h"
#include "common/host_device.h"

namespace hvd {

struct f8e4m3 {
  std::uint8_t bits;
};
struct f8e5m2 {
  std::uint8_t bits;
};

namespace float8 {

constexpr std::uint32_t nan = 0x7f;  ///< the NaN that conversions return, without the sign

template <class F8>
struct Layout;
template <>
struct Layout<f8e4m3> {
  static constexpr int fraction = 3, bias = 7;
  static constexpr std::uint32_t largest = 0x43e80000;  ///< largest f32 that rounds to a finite number, as bits: 464
  static constexpr std::uint32_t beyond = nan;          ///< bits of a larger number
  static constexpr std::uint32_t first_nan = 0x7f;
};
template <>
struct Layout<f8e5m2> {
  static constexpr int fraction = 2, bias = 15;
  static constexpr std::uint32_t largest = 0x476fffff;  ///< just below 61440, the middle of 57344 and 65536
  static constexpr std::uint32_t beyond = 0x7c;
  static constexpr std::uint32_t first_nan = 0x7d;
};

/// The bits of 2^exponent as f32.
HVD_BOTH constexpr std::uint32_t power(int exponent) { return static_cast<std::uint32_t>(127 + exponent) << 23; }

}  // namespace float8

template <class F8>
HVD_BOTH float from_float8(F8 x) {
  using namespace float8;
  using L = Layout<F8>;
  const std::uint32_t sign = (x.bits & 0x80u) << 24, size = x.bits & 0x7fu;
  const std::uint32_t normal = (size << (23 - L::fraction)) + (static_cast<std::uint32_t>(127 - L::bias) << 23);
  constexpr std::uint32_t unit = power(1 - L::bias - L::fraction);
  const std::uint32_t small = as_bits(static_cast<float>(static_cast<std::int32_t>(size)) * as_float(unit));
  std::uint32_t bits = size < (1u << L::fraction) ? small : normal;
  if constexpr (L::beyond != nan) bits = size == L::beyond ? 0x7f800000u : bits;
  bits = size >= L::first_nan ? 0x7fc00000u : bits;
  return as_float(bits | sign);
}

template <class F8>
HVD_BOTH F8 to_float8(float f) {
  using namespace float8;
  using L = Layout<F8>;
  const std::uint32_t bits = as_bits(f), sign = bits >> 24 & 0x80u, size = bits & 0x7fffffffu;
  constexpr int dropped = 23 - L::fraction;
  const std::uint32_t odd = size >> dropped & 1u;
  const std::uint32_t normal = ((size + (1u << (dropped - 1)) - 1u + odd) >> dropped) -
                               (static_cast<std::uint32_t>(127 - L::bias) << L::fraction);
  // For numbers below the smallest normal number.  `aligned` is a power of two.  The last place of `aligned` in f32 has
  // the value of the type's smallest number.  So adding `aligned` shifts the fraction into place, and rounds.
  constexpr std::uint32_t aligned = power(24 - L::bias - L::fraction);
  const std::uint32_t small = as_bits(as_float(size) + as_float(aligned)) - aligned;
  std::uint32_t to = size < power(1 - L::bias) ? small : normal;
  to = size > L::largest ? L::beyond : to;
  to = size > 0x7f800000u ? nan : to;
  return F8{static_cast<std::uint8_t>(sign | to)};
}

}  // namespace hvd

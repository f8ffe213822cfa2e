/// @file float16.h — conversions of f16 (IEEE half precision) and bf16 (the upper half of an f32) to f32 and back.
///
/// Conversions round to the nearest, ties to even.  A number that is too large becomes infinity; a NaN stays one.
/// The host's functions have no branches, so the compiler can vectorize loops over them.
#pragma once
#include <cstdint>
#include <cstring>

#include "common/host_device.h"

#if defined(__CUDACC__)
#include <cuda_fp16.h>
#endif

namespace hvd {

struct f16 {
  std::uint16_t bits;
};
struct bf16 {
  std::uint16_t bits;
};

/// The bits of @p from, read as a To.
template <class To, class From>
HVD_BOTH To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
HVD_BOTH float as_float(std::uint32_t bits) { return bits_as<float>(bits); }
HVD_BOTH std::uint32_t as_bits(float f) { return bits_as<std::uint32_t>(f); }

HVD_BOTH float from_f16(f16 x) {
#if defined(__CUDA_ARCH__)
  return __half2float(bits_as<__half>(x.bits));
#else
  // A multiplication scales the exponent, and also normalises subnormals.
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000u) << 16;
  const float scaled = as_float(static_cast<std::uint32_t>(x.bits & 0x7fffu) << 13) * as_float(0x77800000u);  // 2^112
  const std::uint32_t special = (x.bits & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
  return as_float(as_bits(scaled) | special | sign);
#endif
}

HVD_BOTH f16 to_f16(float f) {
#if defined(__CUDA_ARCH__)
  return f16{bits_as<std::uint16_t>(__float2half_rn(f))};
#else
  const std::uint32_t bits = as_bits(f), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
  const std::uint32_t normal = (size + 0xfffu + (size >> 13 & 1u) - 0x38000000u) >> 13;
  // Below 2^-14: adding 0.5 aligns the fraction with f16's subnormals, and rounds.
  const std::uint32_t small = as_bits(as_float(size) + 0.5f) - 0x3f000000u;
  std::uint32_t to = size < 0x38800000u ? small : normal;
  to = size >= 0x477ff000u ? 0x7c00u : to;
  to = size > 0x7f800000u ? 0x7e00u : to;
  return f16{static_cast<std::uint16_t>(sign | to)};
#endif
}

HVD_BOTH float from_bf16(bf16 x) { return as_float(static_cast<std::uint32_t>(x.bits) << 16); }

HVD_BOTH bf16 to_bf16(float f) {
  const std::uint32_t bits = as_bits(f);
  const std::uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return bf16{static_cast<std::uint16_t>(is_nan ? bits >> 16 | 0x40u : rounded)};
}

}  // namespace hvd

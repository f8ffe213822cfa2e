/// @file element_types.h — the C++ type of each dtype, and the wider type for arithmetic.
///
/// The type of each dtype of HVD_DTYPES is in namespace element, under the dtype's word.  Code that depends on the
/// dtype is a template over this type; with_type() in types.h selects the type.
#pragma once
#include <cstdint>
#include <type_traits>

#include "common/float16.h"
#include "common/float8.h"
#include "common/host_device.h"

namespace hvd {

/// An element of dtype boolean.  Any value other than 0 counts as 1.
struct Truth {
  std::uint8_t bits;
};

/// A complex number of two F, as C and Fortran store it.
template <class F>
struct Complex {
  F re, im;
  Complex() = default;
  constexpr Complex(F real, F imaginary) : re(real), im(imaginary) {}
  constexpr explicit Complex(double real) : re(static_cast<F>(real)), im(0) {}
};
template <class T>
inline constexpr bool is_complex_type = false;
template <class F>
inline constexpr bool is_complex_type<Complex<F>> = true;

/// A byte of dtype opaque, which is only moved.
struct Opaque {
  std::uint8_t bits;
};

namespace element {
using u8 = std::uint8_t;
using i8 = std::int8_t;
using u16 = std::uint16_t;
using i16 = std::int16_t;
using i32 = std::int32_t;
using i64 = std::int64_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using f16 = hvd::f16;
using f32 = float;
using f64 = double;
using c64 = Complex<float>;
using c128 = Complex<double>;
using opaque = Opaque;
using boolean = Truth;
using bf16 = hvd::bf16;
using f8e4m3 = hvd::f8e4m3;
using f8e5m2 = hvd::f8e5m2;
}  // namespace element

/// @name Converts x to its type for arithmetic
/// Narrow floats become f32.  Booleans and integers below 32 bits become i32, wider integers i64.  u64 and all other
/// types stay.
/// @{
HVD_BOTH float wide(f16 x) { return from_f16(x); }
HVD_BOTH float wide(bf16 x) { return from_bf16(x); }
HVD_BOTH float wide(f8e4m3 x) { return from_float8(x); }
HVD_BOTH float wide(f8e5m2 x) { return from_float8(x); }
HVD_BOTH std::int32_t wide(Truth x) { return x.bits != 0; }
HVD_BOTH std::int32_t wide(Opaque x) { return x.bits; }
HVD_BOTH std::uint64_t wide(std::uint64_t x) { return x; }
template <class F>
HVD_BOTH Complex<F> wide(Complex<F> x) {
  return x;
}
HVD_BOTH float wide(float x) { return x; }
HVD_BOTH double wide(double x) { return x; }
template <class T, class = std::enable_if_t<std::is_integral_v<T>>>
HVD_BOTH auto wide(T x) {
  return static_cast<std::conditional_t<(sizeof(T) < 4), std::int32_t, std::int64_t>>(x);
}
/// @}
template <class T>
using Wide = decltype(wide(T{}));

/// @name Converts back to the element type: floats round to the nearest, ties to even; integers wrap
/// @{
HVD_BOTH void narrow(float x, f16& to) { to = to_f16(x); }
HVD_BOTH void narrow(float x, bf16& to) { to = to_bf16(x); }
HVD_BOTH void narrow(float x, f8e4m3& to) { to = to_float8<f8e4m3>(x); }
HVD_BOTH void narrow(float x, f8e5m2& to) { to = to_float8<f8e5m2>(x); }
HVD_BOTH void narrow(std::int32_t x, Truth& to) { to.bits = x != 0; }
HVD_BOTH void narrow(std::int32_t x, Opaque& to) { to.bits = static_cast<std::uint8_t>(x); }
template <class F>
HVD_BOTH void narrow(Complex<F> x, Complex<F>& to) {
  to = x;
}
template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
HVD_BOTH void narrow(Wide<T> x, T& to) {
  to = static_cast<T>(x);
}
/// @}

}  // namespace hvd

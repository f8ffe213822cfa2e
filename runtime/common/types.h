/// @file types.h — the runtime's enumerations of kinds, dtypes and reductions.
///
/// Made from the lists in hvd.h: HVD_KINDS, HVD_DTYPES, HVD_REDUCES.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "common/element_types.h"
#include "hvd/hvd.h"

namespace hvd {

#define HVD_WORD(enumerator, number, word, ...) word = enumerator,
#define HVD_ONE(...) +1

enum class Kind : std::uint8_t {
  HVD_KINDS(HVD_WORD) set_change,  ///< a process set is added or removed; no request has this kind
};
inline constexpr int num_kinds = 0 HVD_KINDS(HVD_ONE);  ///< number of kinds that a request can have
/// The bit of @p k in a set of kinds.
inline constexpr std::uint32_t bit_of(Kind k) { return 1u << static_cast<int>(k); }

/// @name Sets of kinds with a common property
/// @{
inline constexpr std::uint32_t reducing_kinds = bit_of(Kind::allreduce) | bit_of(Kind::reducescatter);
/// The first dimension may differ by rank.
inline constexpr std::uint32_t own_rows_kinds = bit_of(Kind::allgather) | bit_of(Kind::alltoall);
/// The runtime allocates the result, since its size is known only when the operation runs.
inline constexpr std::uint32_t taken_kinds = own_rows_kinds | bit_of(Kind::reducescatter);
inline constexpr std::uint32_t moving_kinds = own_rows_kinds | bit_of(Kind::broadcast);
/// All kinds with a tensor.
inline constexpr std::uint32_t tensor_kinds = reducing_kinds | moving_kinds;
inline constexpr bool is_among(Kind k, std::uint32_t kinds) { return kinds & bit_of(k); }
/// @}

enum class DType : std::uint8_t { HVD_DTYPES(HVD_WORD) };
inline constexpr int num_dtypes = 0 HVD_DTYPES(HVD_ONE);

enum class Reduce : std::uint8_t { HVD_REDUCES(HVD_WORD) };
inline constexpr int num_reduces = 0 HVD_REDUCES(HVD_ONE);

#undef HVD_WORD
#undef HVD_ONE

/// Returns f(x) for a value x of the dtype's C++ type, such as f(element::f16{}).  @p f must return the same type for
/// all dtypes.
template <class F>
constexpr auto with_type(DType d, F&& f) {
#define HVD_CASE(enumerator, number, word, ...) \
  case DType::word:                             \
    return f(element::word{});
  switch (d) { HVD_DTYPES(HVD_CASE) }
#undef HVD_CASE
  return f(element::u8{});  // not reached
}

inline constexpr std::size_t element_bytes(DType d) {
#define HVD_BYTES(enumerator, number, word, name, bytes) bytes,
  constexpr std::uint8_t table[] = {HVD_DTYPES(HVD_BYTES)};
#undef HVD_BYTES
  return table[static_cast<int>(d)];
}

inline constexpr bool is_floating(DType d) {
  return with_type(d, [](auto x) { return std::is_floating_point_v<Wide<decltype(x)>>; });
}
inline constexpr bool is_complex(DType d) {
  return with_type(d, [](auto x) { return is_complex_type<decltype(x)>; });
}
/// True if tensors of this dtype can be reduced by @p r.  All frameworks and the C interface use this rule.
inline constexpr bool reducible(DType d, Reduce r) {
  if (d == DType::opaque) return false;
  if (is_complex(d)) return r == Reduce::sum || r == Reduce::average || r == Reduce::product;
  return r != Reduce::adasum || is_floating(d);
}
/// The dtype of the two parts of a complex number.  A sum of complex numbers is a sum of twice as many parts.  Other
/// dtypes stay.
inline constexpr DType part_type(DType d) { return d == DType::c64 ? DType::f32 : d == DType::c128 ? DType::f64 : d; }
/// True for floats below 32 bits, whose sums are computed in f32.
inline constexpr bool is_narrow_float(DType d) { return is_floating(d) && element_bytes(d) < sizeof(float); }
inline constexpr bool is_float8(DType d) { return is_floating(d) && element_bytes(d) == 1; }

#define HVD_NAME(enumerator, number, word, name, ...) name,
inline const char* name_of(DType d) {
  static constexpr const char* names[] = {HVD_DTYPES(HVD_NAME)};
  return names[static_cast<int>(d)];
}

inline const char* name_of(Kind k) {
  static constexpr const char* names[] = {HVD_KINDS(HVD_NAME) "process set"};
  return names[static_cast<int>(k)];
}

inline const char* name_of(Reduce r) {
  static constexpr const char* names[] = {HVD_REDUCES(HVD_NAME)};
  return names[static_cast<int>(r)];
}
#undef HVD_NAME

}  // namespace hvd

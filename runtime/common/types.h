/// @file types.h — kinds, dtypes and reductions as the runtime names them.
///
/// All made from the lists in hvd.h: HVD_KINDS, HVD_DTYPES, HVD_REDUCES.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "hvd/hvd.h"

namespace hvd {

#define HVD_WORD(enumerator, number, word, ...) word = enumerator,
#define HVD_ONE(...) +1

enum class Kind : std::uint8_t {
  HVD_KINDS(HVD_WORD) set_change,  ///< a process set comes or goes; never asked for by a request
};
inline constexpr int num_kinds = 0 HVD_KINDS(HVD_ONE);  ///< of requests
/// In a set of kinds.
inline constexpr std::uint32_t bit_of(Kind k) { return 1u << static_cast<int>(k); }

enum class DType : std::uint8_t { HVD_DTYPES(HVD_WORD) };
inline constexpr int num_dtypes = 0 HVD_DTYPES(HVD_ONE);

enum class Reduce : std::uint8_t { HVD_REDUCES(HVD_WORD) };
inline constexpr int num_reduces = 0 HVD_REDUCES(HVD_ONE);

#undef HVD_WORD
#undef HVD_ONE

inline constexpr std::size_t element_bytes(DType d) {
#define HVD_BYTES(enumerator, number, word, name, bytes) bytes,
  constexpr std::uint8_t table[] = {HVD_DTYPES(HVD_BYTES)};
#undef HVD_BYTES
  return table[static_cast<int>(d)];
}

inline constexpr bool is_float8(DType d) { return d == DType::f8e4m3 || d == DType::f8e5m2; }
/// Sums of it are made in f32.
inline constexpr bool is_narrow_float(DType d) { return d == DType::f16 || d == DType::bf16 || is_float8(d); }
inline constexpr bool is_floating(DType d) { return d == DType::f32 || d == DType::f64 || is_narrow_float(d); }

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

/// @file types.h — kinds, dtypes and reductions as the runtime names them.
///
/// The numbers are those of hvd.h; the tables here are the only place that knows
/// sizes and printable names.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "hvd/hvd.h"

namespace hvd {

enum class Kind : std::uint8_t {
  allreduce = HVD_ALLREDUCE,
  allgather = HVD_ALLGATHER,
  broadcast = HVD_BROADCAST,
  alltoall = HVD_ALLTOALL,
  reducescatter = HVD_REDUCESCATTER,
  barrier = HVD_BARRIER,
  join = HVD_JOIN,
  set_change,  ///< a process set comes or goes; never asked for by a request
};
inline constexpr int num_kinds = 7;  ///< of requests
/// In a set of kinds.
inline constexpr std::uint32_t bit_of(Kind k) { return 1u << static_cast<int>(k); }

enum class DType : std::uint8_t {
  u8 = HVD_U8,
  i8 = HVD_I8,
  u16 = HVD_U16,
  i16 = HVD_I16,
  i32 = HVD_I32,
  i64 = HVD_I64,
  f16 = HVD_F16,
  f32 = HVD_F32,
  f64 = HVD_F64,
  boolean = HVD_BOOL,
  bf16 = HVD_BF16,
  f8e4m3 = HVD_F8E4M3,
  f8e5m2 = HVD_F8E5M2
};
inline constexpr int num_dtypes = 13;

enum class Reduce : std::uint8_t {
  average = HVD_AVERAGE,
  sum = HVD_SUM,
  adasum = HVD_ADASUM,
  min = HVD_MIN,
  max = HVD_MAX,
  product = HVD_PRODUCT
};
inline constexpr int num_reduces = 6;

inline constexpr std::size_t element_bytes(DType d) {
  constexpr std::uint8_t bytes[num_dtypes] = {1, 1, 2, 2, 4, 8, 2, 4, 8, 1, 2, 1, 1};
  return bytes[static_cast<int>(d)];
}

inline constexpr bool is_float8(DType d) { return d == DType::f8e4m3 || d == DType::f8e5m2; }
/// Sums of it are made in f32.
inline constexpr bool is_narrow_float(DType d) { return d == DType::f16 || d == DType::bf16 || is_float8(d); }
inline constexpr bool is_floating(DType d) { return d == DType::f32 || d == DType::f64 || is_narrow_float(d); }

inline const char* name_of(DType d) {
  static constexpr const char* names[num_dtypes] = {"uint8",    "int8",          "uint16",     "int16",   "int32",
                                                    "int64",    "float16",       "float32",    "float64", "bool",
                                                    "bfloat16", "float8_e4m3fn", "float8_e5m2"};
  return names[static_cast<int>(d)];
}

inline const char* name_of(Kind k) {
  static constexpr const char* names[num_kinds + 1] = {"allreduce",     "allgather", "broadcast", "alltoall",
                                                       "reducescatter", "barrier",   "join",      "process set"};
  return names[static_cast<int>(k)];
}

inline const char* name_of(Reduce r) {
  static constexpr const char* names[num_reduces] = {"Average", "Sum", "Adasum", "Min", "Max", "Product"};
  return names[static_cast<int>(r)];
}

}  // namespace hvd

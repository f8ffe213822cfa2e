/// @file dtype_numbers.h — the numbers of our dtypes in NCCL, TensorFlow and XLA.
///
/// These numbers cannot change: NCCL's binary interface, TensorFlow's saved files and XLA's serialised programs contain
/// them.  A dtype that a library lacks has -1 in that library's column.  NCCL moves such a dtype, but does not reduce
/// it.  TensorFlow and JAX cannot pass such a dtype.
#pragma once
#include <cstddef>

#include "hvd/hvd.h"

/// In the order of HVD_DTYPES: X(enumerator, word, ncclDataType_t, TF_DataType, TensorFlow's name, PrimitiveType).
/// TensorFlow's name is the dtype's name in an op's definition; "": a definition cannot name the dtype.
#define HVD_DTYPE_NUMBERS(X)                  \
  X(HVD_U8, u8, 1, 4, "uint8", 6)             \
  X(HVD_I8, i8, 0, 6, "int8", 2)              \
  X(HVD_U16, u16, -1, 17, "uint16", 7)        \
  X(HVD_I16, i16, -1, 5, "int16", 3)          \
  X(HVD_I32, i32, 2, 3, "int32", 4)           \
  X(HVD_I64, i64, 4, 9, "int64", 5)           \
  X(HVD_F16, f16, 6, 19, "half", 10)          \
  X(HVD_F32, f32, 7, 1, "float", 11)          \
  X(HVD_F64, f64, 8, 2, "double", 12)         \
  X(HVD_BOOL, boolean, -1, 10, "bool", 1)     \
  X(HVD_BF16, bf16, 9, 14, "bfloat16", 16)    \
  X(HVD_F8E4M3, f8e4m3, 10, 25, "", 20)       \
  X(HVD_F8E5M2, f8e5m2, 11, 24, "", 19)       \
  X(HVD_U32, u32, 3, 22, "uint32", 8)         \
  X(HVD_U64, u64, 5, 23, "uint64", 9)         \
  X(HVD_C64, c64, -1, 8, "complex64", 15)     \
  X(HVD_C128, c128, -1, 18, "complex128", 18) \
  X(HVD_OPAQUE, opaque, -1, -1, "", -1)

namespace hvd {
#define HVD_ENUMERATOR(enumerator, ...) enumerator,
inline constexpr hvd_dtype all_dtypes[] = {HVD_DTYPES(HVD_ENUMERATOR)};
inline constexpr hvd_dtype numbered_dtypes[] = {HVD_DTYPE_NUMBERS(HVD_ENUMERATOR)};
#undef HVD_ENUMERATOR
static_assert(
    [] {
      bool same = sizeof all_dtypes == sizeof numbered_dtypes;
      for (std::size_t i = 0; same && i < sizeof all_dtypes / sizeof *all_dtypes; ++i)
        same = all_dtypes[i] == numbered_dtypes[i];
      return same;
    }(),
    "HVD_DTYPE_NUMBERS has a row for each of HVD_DTYPES, in their order");
}  // namespace hvd

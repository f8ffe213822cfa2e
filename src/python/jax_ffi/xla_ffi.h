/// @file xla_ffi.h — the part of XLA's FFI that our handler uses, as its C interface (xla/ffi/api/c_api.h, which jaxlib
/// ships) lays it out.
///
/// Declared here, so that one binary, built where no jaxlib is, serves all of them.  What moved between its versions is
/// read from the header of the jaxlib that is there, by hvd/jax/_library.py: the version, and where in the table of
/// functions those are that we call.
#pragma once
#include <cstddef>
#include <cstdint>

namespace hvd::jax::xla {

struct Error;
struct Future;

struct Extension {
  std::size_t struct_size;
  int type;
  Extension* next;
};
constexpr int extension_metadata = 1;

struct ApiVersion {
  std::size_t struct_size;
  void* extension_start;
  int major_version, minor_version;
};

/// XLA_FFI_Metadata's beginning; what follows it is for handlers with state.
struct Metadata {
  std::size_t struct_size;
  ApiVersion api_version;
  std::uint32_t traits;
};

struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

/// XLA's PrimitiveType; frozen by serialised programs.
enum DataType : int {
  pred = 1,
  s8 = 2,
  s16 = 3,
  s32 = 4,
  s64 = 5,
  u8 = 6,
  u16 = 7,
  u32 = 8,
  u64 = 9,
  f16 = 10,
  f32 = 11,
  f64 = 12,
  c64 = 15,
  bf16 = 16,
  token = 17,
  c128 = 18,
  f8e5m2 = 19,
  f8e4m3fn = 20,
};

struct Buffer {
  std::size_t struct_size;
  void* extension_start;
  int dtype;
  void* data;
  std::int64_t rank;
  std::int64_t* dims;
};

/// Arguments and results alike: size buffers.
struct Buffers {
  std::size_t struct_size;
  void* extension_start;
  std::int64_t size;
  int* types;
  void** buffers;
};

struct Text {
  const char* data;
  std::size_t length;
};

struct Attributes {
  std::size_t struct_size;
  void* extension_start;
  std::int64_t size;
  int* types;
  Text** names;
  void** values;
};
constexpr int attribute_string = 4;

struct CallFrame {
  std::size_t struct_size;
  Extension* extension_start;
  const void* api;
  void* context;
  int stage;
  Buffers arguments, results;
  Attributes attributes;
  Future* future;  ///< out; not there in the oldest, see struct_size
};

struct ErrorCreate {
  std::size_t struct_size;
  void* extension_start;
  const char* message;
  int code;
};

struct StreamGet {
  std::size_t struct_size;
  void* extension_start;
  void* context;
  void* stream;  ///< out: the CUstream, on the platform CUDA
};

struct FutureCreate {
  std::size_t struct_size;
  void* extension_start;
  Future* future;  ///< out
};

struct FutureSetAvailable {
  std::size_t struct_size;
  void* extension_start;
  Future* future;
};

struct FutureSetError {
  std::size_t struct_size;
  void* extension_start;
  Future* future;
  Error* error;
};

/// Where our functions are in the table that a call brings along: bytes from its beginning, 0 for one it has not.
struct Layout {
  std::int32_t major, minor;
  std::int32_t metadata;  ///< 1: it asks handlers for the version they were made for
  std::int32_t error_create, future_create, future_set_available, future_set_error, stream_get;
};

}  // namespace hvd::jax::xla

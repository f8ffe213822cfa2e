/// @file xla_ffi.h — the part of XLA's FFI that the handler uses, in the layout of its C interface. jaxlib ships this
/// interface as xla/ffi/api/c_api.h.
///
/// The layout is declared here, so that one binary, built without jaxlib, serves all versions.  Two parts differ
/// between versions: the version number, and the positions of the called functions in the table. hvd/jax/_library.py
/// reads them from the header of the installed jaxlib.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/dtype_numbers.h"

namespace hvd::jax {

struct XlaError;
struct XlaFuture;

struct XlaExtension {
  std::size_t struct_size;
  int type;
  XlaExtension* next;
};
constexpr int xla_extension_metadata = 1;

struct XlaApiVersion {
  std::size_t struct_size;
  void* extension_start;
  int major_version, minor_version;
};

/// The first fields of XLA_FFI_Metadata; the others are for handlers with state.
struct XlaMetadata {
  std::size_t struct_size;
  XlaApiVersion api_version;
  std::uint32_t traits;
};

struct XlaMetadataExtension {
  XlaExtension base;
  XlaMetadata* metadata;
};

/// XLA's PrimitiveType, for the supported types: xla_f32 and so on.
#define HVD_XLA_ENUMERATOR(enumerator, word, nccl, tensorflow, name, number) xla_##word = number,
enum XlaType : int { HVD_DTYPE_NUMBERS(HVD_XLA_ENUMERATOR) xla_token = 17 };
#undef HVD_XLA_ENUMERATOR

struct XlaBuffer {
  std::size_t struct_size;
  void* extension_start;
  int dtype;
  void* data;
  std::int64_t rank;
  std::int64_t* dims;
};

/// Arguments and results alike: size buffers.
struct XlaBuffers {
  std::size_t struct_size;
  void* extension_start;
  std::int64_t size;
  int* types;
  void** buffers;
};

struct XlaText {
  const char* data;
  std::size_t length;
};

struct XlaAttributes {
  std::size_t struct_size;
  void* extension_start;
  std::int64_t size;
  int* types;
  XlaText** names;
  void** values;
};
constexpr int xla_attribute_string = 4;

struct XlaCallFrame {
  std::size_t struct_size;
  XlaExtension* extension_start;
  const void* api;
  void* context;
  int stage;
  XlaBuffers arguments, results;
  XlaAttributes attributes;
  XlaFuture* future;  ///< out; absent in the oldest versions, see struct_size
};

struct XlaErrorCreate {
  std::size_t struct_size;
  void* extension_start;
  const char* message;
  int code;
};

struct XlaStreamGet {
  std::size_t struct_size;
  void* extension_start;
  void* context;
  void* stream;  ///< out: the CUstream, on the platform CUDA
};

struct XlaFutureCreate {
  std::size_t struct_size;
  void* extension_start;
  XlaFuture* future;  ///< out
};

struct XlaFutureSetAvailable {
  std::size_t struct_size;
  void* extension_start;
  XlaFuture* future;
};

struct XlaFutureSetError {
  std::size_t struct_size;
  void* extension_start;
  XlaFuture* future;
  XlaError* error;
};

/// Positions of the called functions in the function table of a call, in bytes. 0: the table lacks the function.
struct XlaLayout {
  std::int32_t major, minor;
  std::int32_t metadata;  ///< 1: XLA asks handlers for the version of their interface
  std::int32_t error_create, future_create, future_set_available, future_set_error, stream_get;
};

}  // namespace hvd::jax

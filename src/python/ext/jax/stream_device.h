/// @file stream_device.h — the few functions of CUDA's driver that a call on a GPU needs, by dlopen.  XLA has loaded it
/// before.
#pragma once
#include <cstddef>
#include <string>

namespace hvd::jax::gpu {

/// The number of the GPU of @p stream; -1 if the driver does not report it.
int ordinal_of(void* stream);

/// Puts a copy between two places of that GPU on @p stream. Returns "" or the error.
std::string copy(void* to, const void* from, std::size_t bytes, void* stream);

}  // namespace hvd::jax::gpu

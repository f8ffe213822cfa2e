/// @file stream_device.h — the few functions of CUDA's driver that a call on a GPU needs, by dlopen.  XLA has loaded it
/// before.
#pragma once
#include <cstddef>
#include <string>

namespace hvd::jax::gpu {

/// The number of the GPU that @p stream is of; -1 when the driver does not tell.
int ordinal_of(void* stream);

/// Puts a copy between two places of that GPU on @p stream.  "" or why it failed.
std::string copy(void* to, const void* from, std::size_t bytes, void* stream);

}  // namespace hvd::jax::gpu

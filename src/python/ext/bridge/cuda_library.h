/// @file cuda_library.h — the few functions of CUDA's driver that a call on a GPU needs.
#pragma once

namespace hvd::bridge {

/// Returns the library that libhvd opens too (runtime/gpu/cuda/driver.h), which the framework has loaded before.
/// Returns nullptr if there is none, with the reason in *why.
void* cuda_library(const char** why);

/// Writes the function of that name to *slot: the address of a pointer to a function. Returns false if there is none.
bool find_symbol(void* library, const char* name, void* slot);

}  // namespace hvd::bridge

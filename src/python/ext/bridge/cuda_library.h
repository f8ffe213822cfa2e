/// @file cuda_library.h — CUDA's driver, for the few functions of it that a call on a GPU needs.
#pragma once

namespace hvd::bridge {

/// The library that libhvd opens too (runtime/gpu/cuda/driver.h), which the framework has loaded before; nullptr where
/// there is none, and *why says so.
void* cuda_library(const char** why);

/// The function of that name, into *slot: the address of a pointer to a function.  False: there is none.
bool find_symbol(void* library, const char* name, void* slot);

}  // namespace hvd::bridge

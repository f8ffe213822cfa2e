#include "cuda_library.h"

#include <dlfcn.h>

#include <cstring>

#include "options/variable.h"

namespace hvd::bridge {

void* cuda_library(const char** why) {
  const char* named = options::value_of("HVD_CUDA_LIBRARY");
  void* library = dlopen(named ? named : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) *why = dlerror();
  return library;
}

bool find_symbol(void* library, const char* name, void* slot) {
  void* const symbol = library ? dlsym(library, name) : nullptr;
  std::memcpy(slot, &symbol, sizeof symbol);
  return symbol != nullptr;
}

}  // namespace hvd::bridge

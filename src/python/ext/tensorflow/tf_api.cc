#include "tf_api.h"

#include <dlfcn.h>

#include <cstring>

namespace hvd::tensorflow {

TensorFlowFunctions tf;

std::string find_tensorflow() {
  // `import tensorflow` has loaded it, but not into the global scope, so it must be named.
  void* library = nullptr;
  for (const char* name : {"libtensorflow_framework.so.2", "libtensorflow_cc.so.2", "libtensorflow_framework.so.1"})
    if (!library) library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
  std::string missing;
  const auto find = [&](const char* name, void* slot) {
    void* symbol = library ? dlsym(library, name) : nullptr;
    if (!symbol) symbol = dlsym(RTLD_DEFAULT, name);
    if (symbol)
      std::memcpy(slot, &symbol, sizeof symbol);
    else if (missing.empty() && std::strcmp(name, "TF_NewAsyncKernelBuilder") != 0)
      missing = name;
  };
#define HVD_TF_FIND(result, name, parameters) find("TF_" #name, &tf.name);
  HVD_TF_FUNCTIONS(HVD_TF_FIND)
#undef HVD_TF_FIND
  if (missing.empty()) return {};
  return library ? "this TensorFlow lacks " + missing + ": 2.9 or later is needed" : "no TensorFlow is loaded";
}

}  // namespace hvd::tensorflow

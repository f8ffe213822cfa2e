#include "gpu_kernels.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "../bridge/cuda_library.h"
#include "options/variable.h"
#include "tf_api.h"

namespace hvd::tensorflow {
namespace {

constexpr int attribute_device_ordinal = 9;  // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
constexpr int success = 0;

struct PointerQueries {
  int (*version)(int* version) = nullptr;
  int (*pointer_attribute)(void* value, int attribute, unsigned long long address) = nullptr;
  int (*current_device)(int* device) = nullptr;
} driver;

}  // namespace

bool gpu_wanted() {
  const char* text = options::value_of("HVD_TENSORFLOW_GPU");
  return text && std::strcmp(text, "0") != 0;
}

std::string gpu_type() {
  const char* text = options::value_of("HVD_TENSORFLOW_DEVICE_TYPE");
  return text ? text : "GPU";
}

std::string find_gpu() {
  if (!tf.NewAsyncKernelBuilder) return "TensorFlow 2.13 or later is needed";
  const char* why = "";
  void* library = bridge::cuda_library(&why);
  if (!library) return std::string("no CUDA driver: ") + why;
  int version = 0;
  void* record_event = nullptr;  // libhvd checks for it
  const bool whole = bridge::find_symbol(library, "cuDriverGetVersion", &driver.version) &&
                     bridge::find_symbol(library, "cuPointerGetAttribute", &driver.pointer_attribute) &&
                     bridge::find_symbol(library, "cuCtxGetDevice", &driver.current_device) &&
                     driver.version(&version) == success;
  if (!whole || version < 12050 || !bridge::find_symbol(library, "cuCtxRecordEvent", &record_event))
    return "a CUDA driver for 12.5 or later is needed" +
           (version ? ", this one is for " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10)
                    : "");
  return {};
}

int gpu_of(const void* data) {
  static std::atomic<int> last{-1};
  int ordinal = last.load(std::memory_order_relaxed);
  if (!data && ordinal >= 0) return ordinal;
  const int code =
      data ? driver.pointer_attribute(&ordinal, attribute_device_ordinal, reinterpret_cast<unsigned long long>(data))
           : driver.current_device(&ordinal);
  if (code != success) return -1;
  last.store(ordinal, std::memory_order_relaxed);
  return ordinal;
}

}  // namespace hvd::tensorflow

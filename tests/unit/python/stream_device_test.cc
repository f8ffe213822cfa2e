/// The calls of hvd.jax's handler to CUDA's driver, over the fake driver.
#include "ext/jax/stream_device.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <string>

extern "C" {
int cuCtxGetDevice(int* device);
int cuCtxPopCurrent_v2(void** context);
int cuCtxPushCurrent_v2(void* context);
int cuDevicePrimaryCtxRetain(void** context, int device);
int cuStreamCreateWithPriority(void** stream, unsigned flags, int priority);
int cuStreamSynchronize(void* stream);
}

using namespace hvd::jax;

namespace {

void* stream_of_gpu(int ordinal) {
  void *context = nullptr, *stream = nullptr;
  REQUIRE(cuDevicePrimaryCtxRetain(&context, ordinal) == 0);
  REQUIRE(cuCtxPushCurrent_v2(context) == 0);
  REQUIRE(cuStreamCreateWithPriority(&stream, 1, 0) == 0);
  REQUIRE(cuCtxPopCurrent_v2(&context) == 0);
  return stream;
}

bool no_context_is_current() {
  int device = 0;
  return cuCtxGetDevice(&device) == 201;  // CUDA_ERROR_INVALID_CONTEXT
}

}  // namespace

TEST_CASE("JAX on GPUs: a stream tells its GPU, and what was current stays so") {
  void *first = stream_of_gpu(0), *second = stream_of_gpu(1);
  int nothing = 0;
  CHECK(gpu::ordinal_of(first) == 0);
  CHECK(gpu::ordinal_of(second) == 1);
  CHECK(gpu::ordinal_of(&nothing) == -1);
  CHECK(no_context_is_current());
}

TEST_CASE("JAX on GPUs: a copy is put on the stream, or says why not") {
  void* stream = stream_of_gpu(1);
  const char from[] = "twelve bytes";
  char to[sizeof from] = "";
  CHECK(gpu::copy(to, from, sizeof from, stream) == "");
  CHECK(cuStreamSynchronize(stream) == 0);
  CHECK(std::strcmp(to, from) == 0);
  CHECK(gpu::copy(to, from, 0, stream) == "");
  int nothing = 0;
  CHECK(gpu::copy(to, from, sizeof from, &nothing) == "CUDA's driver does not know the stream of the program");
  setenv("FAKE_CUDA_FAIL", "cuMemcpyDtoDAsync_v2:1:700", 1);
  CHECK(gpu::copy(to, from, sizeof from, stream) == "a copy on the GPU failed: CUDA error 700");
  unsetenv("FAKE_CUDA_FAIL");
  CHECK(no_context_is_current());
}

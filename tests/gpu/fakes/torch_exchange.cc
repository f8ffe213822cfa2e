/// @file torch_exchange.cc — what torch offers to C (DLPack's exchange functions), with host memory as a fake GPU's.
///
/// tests/python/ranks/fake_gpu.py puts it between torch and hvd._native.  A tensor with the attribute in_host_memory
/// stays on the host, where attributes are looked at.
#include <cstdint>

extern "C" int PyObject_HasAttrString(void* object, const char* name) __attribute__((weak));

namespace {

struct Tensor {
  void* data;
  std::int32_t device_type, device_id;
};
struct Exchange {
  std::uint32_t major, minor;
  void *older, *unused[3];
  int (*view)(void* tensor, Tensor* out);
  int (*current_stream)(std::int32_t device_type, std::int32_t device_id, void** stream);
};
constexpr std::int32_t on_host = 1, on_gpu = 2;

Exchange fake;
int (*plain_view)(void* tensor, Tensor* out);
std::int32_t gpu_number = 0;
bool asks_tensors = false;

int view(void* tensor, Tensor* out) {
  const int status = plain_view(tensor, out);
  if (status != 0 || out->device_type != on_host) return status;
  if (asks_tensors && PyObject_HasAttrString(tensor, "in_host_memory") != 0) return 0;
  out->device_type = on_gpu;
  out->device_id = gpu_number;
  return 0;
}

void* present_stream = nullptr;
int current_stream(std::int32_t, std::int32_t, void** stream) {
  *stream = present_stream;
  return 0;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

/// @p torchs: torch's DLPackExchangeAPI.  Returns the fake one.  @p asks: looks at attributes.
EXPORT void* fake_exchange(const void* torchs, int asks) {
  fake = *static_cast<const Exchange*>(torchs);
  plain_view = fake.view;
  fake.view = view;
  fake.current_stream = current_stream;
  asks_tensors = asks != 0;
  return &fake;
}

EXPORT void fake_exchange_gpu(int number) { gpu_number = number; }
EXPORT void fake_exchange_stream(void* stream) { present_stream = stream; }

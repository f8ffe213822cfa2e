/// libnvidia-ml.so.1 without a GPU: one device, half busy, with 3 GiB in use.
#include <cstring>

extern "C" {

struct Utilization {
  unsigned gpu, memory;
};
struct Memory {
  unsigned long long total, free, used;
};

int nvmlInit_v2() { return 0; }

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  static int the_device;
  *device = &the_device;
  return std::strcmp(uuid, "GPU-f") == 0 ? 0 : 6;
}

int nvmlDeviceGetUtilizationRates(void*, Utilization* u) {
  *u = {50, 10};
  return 0;
}

int nvmlDeviceGetMemoryInfo(void*, Memory* m) {
  *m = {8ull << 30, 5ull << 30, 3ull << 30};
  return 0;
}
}

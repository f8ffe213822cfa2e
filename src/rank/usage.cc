#include "usage.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <thread>

namespace hvd::rank {

TallyPage::TallyPage() : fd_(memfd_create("hvdrank-tally", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  void* page = MAP_FAILED;
  if (fd_ && ftruncate(fd_.get(), wire::tally_bytes) == 0 &&
      fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
    page = mmap(nullptr, wire::tally_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (page == MAP_FAILED) {
    fd_.reset();
    return;
  }
  page_ = new (page) wire::Tally;
  page_->mark = wire::tally_mark;
}

TallyPage::~TallyPage() {
  if (page_) munmap(page_, wire::tally_bytes);
}

/// The rank's own process could have written anything: what makes no sense is left out.
void TallyPage::fill(wire::DeathRecord* r) const {
  if (!page_) return;
  const std::int64_t steps = page_->steps.load(), timed = page_->timed_steps.load();
  const std::int64_t span = page_->last_ns.load() - page_->first_ns.load(), waited = page_->waited_ns.load();
  if (steps < 0) return;
  r->steps = steps;
  if (timed <= 0 || span <= 0 || waited < 0) return;
  r->step_seconds = static_cast<double>(span) / 1e9 / static_cast<double>(timed);
  r->waited_seconds = static_cast<double>(std::min(waited, span)) / 1e9 / static_cast<double>(timed);
}

namespace {

/// The few functions of libnvidia-ml.so.1 that are needed, as NVIDIA's documentation of NVML gives them.
class Nvml {
 public:
  using Device = void*;
  struct Utilization {
    unsigned gpu, memory;  ///< percent of the last sampling period
  };
  struct Memory {
    unsigned long long total, free, used;
  };

  /// Never unloaded: other threads of the library may run.
  bool open(const std::string& gpu) {
    library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library_ || !find(&init_, "nvmlInit_v2") || !find(&utilization_, "nvmlDeviceGetUtilizationRates") ||
        !find(&memory_, "nvmlDeviceGetMemoryInfo") || init_() != 0)
      return false;
    int (*by_name)(const char*, Device*) = nullptr;
    const bool uuid = gpu.starts_with("GPU-") || gpu.starts_with("MIG-");
    return find(&by_name, uuid ? "nvmlDeviceGetHandleByUUID" : "nvmlDeviceGetHandleByPciBusId_v2") &&
           by_name(gpu.c_str(), &device_) == 0;
  }
  /// False where this device (a part of one, say) does not tell.
  bool utilization(Utilization* u) const { return utilization_(device_, u) == 0; }
  bool memory(Memory* m) const { return memory_(device_, m) == 0; }

 private:
  template <class F>
  bool find(F* function, const char* name) const {
    *function = reinterpret_cast<F>(dlsym(library_, name));
    return *function != nullptr;
  }

  void* library_ = nullptr;
  Device device_ = nullptr;
  int (*init_)() = nullptr;
  int (*utilization_)(Device, Utilization*) = nullptr;
  int (*memory_)(Device, Memory*) = nullptr;
};

}  // namespace

struct GpuWatch::State {
  std::mutex mutex;
  std::condition_variable change;
  bool over = false;
  double busy_sum = 0;
  int samples = 0;
  std::int64_t peak_bytes = 0;

  void run(const std::string& gpu) {
    constexpr auto every = std::chrono::seconds(1);
    Nvml nvml;
    if (!nvml.open(gpu)) return;
    for (std::unique_lock lock(mutex); !change.wait_for(lock, every, [this] { return over; });) {
      lock.unlock();
      Nvml::Utilization u{};
      Nvml::Memory m{};
      const bool busy = nvml.utilization(&u), memory = nvml.memory(&m);
      lock.lock();
      if (busy) busy_sum += u.gpu, ++samples;
      if (memory) peak_bytes = std::max(peak_bytes, static_cast<std::int64_t>(m.used));
    }
  }
};

GpuWatch::GpuWatch(const std::string& gpu) {
  if (gpu.empty()) return;
  state_ = std::make_shared<State>();
  sigset_t all, before;  // signals are the guard's loop's
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([state = state_, gpu] { state->run(gpu); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

GpuWatch::~GpuWatch() {
  if (!state_) return;
  std::lock_guard lock(state_->mutex);
  state_->over = true;
  state_->change.notify_all();
}

void GpuWatch::fill(wire::DeathRecord* r) const {
  if (!state_) return;
  std::lock_guard lock(state_->mutex);
  if (state_->samples > 0) r->gpu_busy_percent = state_->busy_sum / state_->samples;
  r->gpu_peak_bytes = state_->peak_bytes;
}

}  // namespace hvd::rank

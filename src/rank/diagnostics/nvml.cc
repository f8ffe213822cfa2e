/// Types, numbers and names are from NVIDIA's documentation of NVML.  Each NVML function returns 0 on success.
#include "rank/diagnostics/nvml.h"

#include <dlfcn.h>

#include <cstdio>

namespace hvd::rank {

namespace {

constexpr unsigned most_links = 18;       // NVML_NVLINK_MAX_LINKS
constexpr unsigned long long xids = 0x8;  // nvmlEventTypeXidCriticalError
constexpr unsigned most_processes = 256;

struct PciInfo {  // nvmlPciInfo_t
  char old_address[16];
  unsigned domain, bus, device, ids, subsystem;
  char address[32];
};
struct ProcessInfo {  // nvmlProcessInfo_t
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};
struct NvmlEvent {  // nvmlEventData_t
  void* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};

}  // namespace

template <class F>
bool Nvml::find(F* function, const char* name) const {
  *function = library_ ? reinterpret_cast<F>(dlsym(library_, name)) : nullptr;
  return *function != nullptr;
}

bool Nvml::open() {
  library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  int (*init)() = nullptr;
  return find(&init, "nvmlInit_v2") && init() == 0;
}

std::optional<Nvml::Device> Nvml::device(const std::string& name) const {
  int (*by_name)(const char*, Device*) = nullptr;
  const bool uuid = name.starts_with("GPU-") || name.starts_with("MIG-");
  Device device = nullptr;
  if (!find(&by_name, uuid ? "nvmlDeviceGetHandleByUUID" : "nvmlDeviceGetHandleByPciBusId_v2") ||
      by_name(name.c_str(), &device) != 0)
    return {};
  return device;
}

std::optional<unsigned> Nvml::busy_percent(Device device) const {
  struct {
    unsigned gpu, memory;  // percent of the last sampling period
  } rates{};
  int (*ask)(Device, decltype(rates)*) = nullptr;
  if (!find(&ask, "nvmlDeviceGetUtilizationRates") || ask(device, &rates) != 0) return {};
  return rates.gpu;
}

std::optional<Nvml::MemoryUse> Nvml::memory(Device device) const {
  struct {
    unsigned long long total, free, used;
  } m{};
  int (*ask)(Device, decltype(m)*) = nullptr;
  if (!find(&ask, "nvmlDeviceGetMemoryInfo") || ask(device, &m) != 0) return {};
  return MemoryUse{static_cast<std::int64_t>(m.total), static_cast<std::int64_t>(m.free),
                   static_cast<std::int64_t>(m.used)};
}

std::vector<Nvml::ProcessMemory> Nvml::processes(Device device) const {
  std::vector<ProcessInfo> all(most_processes);
  unsigned count = most_processes;
  int (*ask)(Device, unsigned*, ProcessInfo*) = nullptr;
  if (!(find(&ask, "nvmlDeviceGetComputeRunningProcesses_v3") ||
        find(&ask, "nvmlDeviceGetComputeRunningProcesses_v2")) ||
      ask(device, &count, all.data()) != 0 || count > most_processes)
    return {};
  std::vector<ProcessMemory> out;
  for (unsigned i = 0; i < count; ++i) {
    const auto bytes = static_cast<std::int64_t>(all[i].bytes);  // all bits are 1 if the driver does not know
    out.push_back({static_cast<int>(all[i].pid), bytes > 0 ? bytes : 0});
  }
  return out;
}

std::optional<std::int64_t> Nvml::lost_words(Device device) const {
  constexpr int uncorrected = 1, since_loaded = 0;
  unsigned long long count = 0;
  int (*ask)(Device, int, int, unsigned long long*) = nullptr;
  if (!find(&ask, "nvmlDeviceGetTotalEccErrors") || ask(device, uncorrected, since_loaded, &count) != 0) return {};
  return static_cast<std::int64_t>(count);
}

std::vector<Nvml::Link> Nvml::links(Device device) const {
  int (*is_up)(Device, unsigned, int*) = nullptr;
  int (*kind_of)(Device, unsigned, int*) = nullptr;
  int (*peer_of)(Device, unsigned, PciInfo*) = nullptr;
  std::vector<Link> out;
  if (!find(&is_up, "nvmlDeviceGetNvLinkState")) return out;
  find(&kind_of, "nvmlDeviceGetNvLinkRemoteDeviceType");
  find(&peer_of, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
  for (unsigned l = 0; l < most_links; ++l) {
    int up = 0, kind = -1;
    if (is_up(device, l, &up) != 0 || up != 1) continue;
    Link link;
    if (kind_of && kind_of(device, l, &kind) == 0)
      link.to = kind == 0 ? Peer::gpu : kind == 2 ? Peer::nvswitch : Peer::other;
    PciInfo pci{};
    if (peer_of && peer_of(device, l, &pci) == 0) {
      char address[32];
      std::snprintf(address, sizeof address, "%04x:%02x:%02x.0", pci.domain, pci.bus & 0xffU, pci.device & 0xffU);
      link.pci = address;
    }
    out.push_back(link);
  }
  return out;
}

bool Nvml::watch_xids(Device device) {
  int (*make)(void**) = nullptr;
  int (*add)(Device, unsigned long long, void*) = nullptr;
  if (!find(&make, "nvmlEventSetCreate") || !find(&add, "nvmlDeviceRegisterEvents") || make(&events_) != 0) {
    events_ = nullptr;
    return false;
  }
  if (add(device, xids, events_) != 0) events_ = nullptr;
  return events_ != nullptr;
}

std::optional<std::uint64_t> Nvml::next_xid() const {
  int (*wait)(void*, NvmlEvent*, unsigned) = nullptr;
  NvmlEvent event{};
  if (!events_ || !find(&wait, "nvmlEventSetWait_v2") || wait(events_, &event, 0) != 0 || event.type != xids) return {};
  return event.data;
}

}  // namespace hvd::rank

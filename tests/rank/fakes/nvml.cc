/// libnvidia-ml.so.1 without a GPU. Every UUID that begins with GPU-f, and every PCI address, is a device. Each device
/// is half busy, with 3 GiB in use. The file that HVD_FAKE_NVML names holds further facts, and is read anew at each
/// query:
///   link PCI gpu|switch PCI    process PID MIB    ecc COUNT    xid NUMBER
/// A query for processes appends a byte to the file's name with .asked: so a test sees that its facts were read.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Line = std::vector<std::string>;

std::string file_name() {
  const char* name = std::getenv("HVD_FAKE_NVML");
  return name ? name : "";
}

std::vector<Line> lines(const std::string& kind) {
  std::vector<Line> out;
  std::ifstream file(file_name());
  for (std::string text; std::getline(file, text);) {
    std::istringstream in(text);
    Line line;
    for (std::string word; in >> word;) line.push_back(word);
    if (line.size() > 1 && line[0] == kind) out.push_back(line);
  }
  return out;
}

std::vector<Line> links_of(void* device) {
  std::vector<Line> out;
  for (const Line& line : lines("link"))
    if (line.size() == 4 && line[1] == *static_cast<std::string*>(device)) out.push_back(line);
  return out;
}

int handle(const char* name, void** device) {
  static std::set<std::string>* names = new std::set<std::string>;
  *device = const_cast<std::string*>(&*names->insert(name).first);
  return 0;
}

}  // namespace

extern "C" {

struct Utilization {
  unsigned gpu, memory;
};
struct Memory {
  unsigned long long total, free, used;
};
struct PciInfo {
  char old_address[16];
  unsigned domain, bus, device, ids, subsystem;
  char address[32];
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};
struct Event {
  void* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};

int nvmlInit_v2() { return 0; }

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  return std::strncmp(uuid, "GPU-f", 5) == 0 ? handle(uuid, device) : 6;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* pci, void** device) { return handle(pci, device); }

int nvmlDeviceGetUtilizationRates(void*, Utilization* u) {
  *u = {50, 10};
  return 0;
}

int nvmlDeviceGetMemoryInfo(void*, Memory* m) {
  *m = {8ull << 30, 5ull << 30, 3ull << 30};
  return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, ProcessInfo* all) {
  unsigned n = 0;
  for (const Line& line : lines("process"))
    if (n < *count) all[n++] = {static_cast<unsigned>(std::stoul(line[1])), std::stoull(line[2]) << 20, 0, 0};
  *count = n;
  if (!file_name().empty()) std::ofstream(file_name() + ".asked", std::ios::app) << '.';
  return 0;
}

int nvmlDeviceGetTotalEccErrors(void*, int type, int, unsigned long long* count) {
  const std::vector<Line> all = lines("ecc");
  *count = all.empty() || type != 1 ? 0 : std::stoull(all[0][1]);
  return 0;
}

int nvmlEventSetCreate(void** set) { return handle("events", set); }
int nvmlDeviceRegisterEvents(void*, unsigned long long types, void*) { return types == 8 ? 0 : 2; }

int nvmlEventSetWait_v2(void*, Event* event, unsigned) {
  static std::size_t told = 0;
  const std::vector<Line> all = lines("xid");
  if (told >= all.size()) return 10;  // NVML_ERROR_TIMEOUT
  *event = {nullptr, 8, std::stoull(all[told++][1]), 0, 0};
  return 0;
}

int nvmlDeviceGetNvLinkState(void* device, unsigned link, int* up) {
  *up = link < links_of(device).size();
  return link < 18 ? 0 : 2;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void* device, unsigned link, int* type) {
  *type = links_of(device)[link][2] == "gpu" ? 0 : 2;
  return 0;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned link, PciInfo* pci) {
  *pci = {};
  return std::sscanf(links_of(device)[link][3].c_str(), "%x:%x:%x", &pci->domain, &pci->bus, &pci->device) == 3 ? 0 : 2;
}
}

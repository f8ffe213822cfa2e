#include "placement/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <tuple>

#include "base/file.h"
#include "base/format.h"
#include "base/text.h"

namespace hvd::placement {

namespace {

namespace fs = std::filesystem;

int number_in(const std::string& path, int otherwise) {
  const auto n = to_integer(first_line(path));
  return n ? static_cast<int>(*n) : otherwise;
}

std::vector<int> allowed_cpus() {
  std::vector<cpu_set_t> set(16);  // 16384 CPUs
  const std::size_t bytes = set.size() * sizeof(cpu_set_t);
  std::vector<int> cpus;
  if (sched_getaffinity(0, bytes, set.data()) != 0) return cpus;
  for (std::size_t cpu = 0; cpu < bytes * 8; ++cpu)
    if (CPU_ISSET_S(cpu, bytes, set.data())) cpus.push_back(static_cast<int>(cpu));
  return cpus;
}

std::vector<std::string> entries(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

/// The NUMA node of a logical CPU, whose folder contains a link node<n>; 0: there is no link.
int node_of_cpu(const std::string& cpu_folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(cpu_folder, ignored)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("node"))
      if (const auto n = to_integer(std::string_view(name).substr(4))) return static_cast<int>(*n);
  }
  return 0;
}

/// Reads the "Key: <tab>value" lines of a file in /proc/driver/nvidia.
std::map<std::string, std::string> keys_of(const std::string& path) {
  std::map<std::string, std::string> out;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (const std::size_t colon = line.find(':'); colon != std::string::npos)
      out[std::string(trim(std::string_view(line).substr(0, colon)))] =
          std::string(trim(std::string_view(line).substr(colon + 1)));
  return out;
}

}  // namespace

std::vector<Core> read_cores(const std::string& root) { return read_cores(root, allowed_cpus()); }

std::vector<Core> read_cores(const std::string& root, const std::vector<int>& allowed) {
  std::map<std::tuple<int, int, int>, Core>
      cores;  // sorted by package, node and core id: neighbours share caches and memory
  for (const int cpu : allowed) {
    const std::string folder = formatted("{}/sys/devices/system/cpu/cpu{}", root, cpu);
    const int node = node_of_cpu(folder);
    Core& core = cores[{number_in(folder + "/topology/physical_package_id", 0), node,
                        number_in(folder + "/topology/core_id", cpu)}];
    core.cpus.push_back(cpu);
    core.node = node;
  }
  std::vector<Core> out;
  for (auto& [key, core] : cores) out.push_back(std::move(core));
  return out;
}

std::vector<GpuInfo> read_gpus(const std::string& root) {
  std::vector<GpuInfo> gpus;
  const std::string driver = root + "/proc/driver/nvidia/gpus";
  for (const std::string& pci : entries(driver)) {  // sorted by PCI address
    std::map<std::string, std::string> keys = keys_of(formatted("{}/{}/information", driver, pci));
    const std::string minor = keys["Device Minor"];
    const int index = static_cast<int>(gpus.size());
    if (!minor.empty() && ::access((root + "/dev/nvidia" + minor).c_str(), R_OK | W_OK) != 0) continue;
    const std::string uuid = keys["GPU UUID"];
    gpus.push_back({pci, uuid.find('?') == std::string::npos ? uuid : "", keys["Model"], index,
                    number_in(formatted("{}/sys/bus/pci/devices/{}/numa_node", root, pci), -1)});
  }
  return gpus;
}

std::vector<Nic> read_nics(const std::string& root) {
  std::vector<Nic> nics;
  const std::string infiniband = root + "/sys/class/infiniband", network = root + "/sys/class/net";
  for (const std::string& name : entries(infiniband))
    nics.push_back({name, number_in(formatted("{}/{}/device/numa_node", infiniband, name), -1), true});
  for (const std::string& name : entries(network))
    if (name != "lo" && first_line(formatted("{}/{}/operstate", network, name)) == "up")
      nics.push_back({name, number_in(formatted("{}/{}/device/numa_node", network, name), -1), false});
  return nics;
}

Machine this_machine() { return {read_cores(), read_gpus(), read_nics()}; }

std::vector<GpuInfo> visible_gpus(const std::vector<GpuInfo>& gpus, const std::string& visible_devices) {
  std::vector<GpuInfo> out;
  for (const std::string& entry : split(visible_devices, ',')) {
    const std::string word(trim(entry));
    if (word.empty()) break;
    std::vector<const GpuInfo*> named;
    const auto number = to_integer(word);
    for (const GpuInfo& g : gpus)
      if (number ? *number == g.index : word.starts_with("GPU-") && g.uuid.starts_with(word)) named.push_back(&g);
    if (named.size() == 1) {
      out.push_back(*named[0]);
    } else if (word.starts_with("MIG-") && !gpus.empty()) {
      // "MIG-GPU-<uuid>/gi/ci" contains the UUID of its GPU; "MIG-<uuid>" does not.  If there is one GPU, the slice is
      // of that GPU.
      GpuInfo slice{"", word, "", static_cast<int>(out.size()), -1};
      const GpuInfo* parent = gpus.size() == 1 ? &gpus[0] : nullptr;
      for (const GpuInfo& g : gpus)
        if (!g.uuid.empty() && word.starts_with("MIG-" + g.uuid + "/")) parent = &g;
      if (parent) slice.pci = parent->pci, slice.node = parent->node, slice.name = parent->name + " MIG";
      out.push_back(slice);
    } else {
      break;
    }
  }
  return out;
}

}  // namespace hvd::placement

#include "launcher/mapping/topology.h"

#include <fcntl.h>
#include <hwloc.h>
#include <hwloc/distances.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>

#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "placement/gpu_paths.h"
#include "placement/machine_text.h"

namespace hvd::launcher {
namespace {

using Topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, decltype(&hwloc_topology_destroy)>;

/// hwloc_topology_init without hwloc's plugins: they look for devices, and bring X11, OpenCL and more into the process.
Topology new_topology() {
  constexpr const char* path = "HWLOC_PLUGINS_PATH";
  const bool ours = environment_value(path) == nullptr;
  if (ours) setenv(path, "/nonexistent", 0);
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) topology = nullptr;
  if (ours) unsetenv(path);
  return {topology, hwloc_topology_destroy};
}

/// The only node of a set; -1: there are several.
int node_of(hwloc_const_bitmap_t nodeset) {
  return nodeset && hwloc_bitmap_weight(nodeset) == 1 ? hwloc_bitmap_first(nodeset) : -1;
}

using Bitmap = std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, decltype(&hwloc_bitmap_free)>;

/// The cores that ranks may use.  On this machine they are the cores that hvdrun is bound to (taskset, a batch system),
/// since ranks inherit that.
Bitmap allowed_cpus(hwloc_topology_t topology) {
  Bitmap allowed(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topology)), hwloc_bitmap_free);
  const Bitmap bound(hwloc_bitmap_alloc(), hwloc_bitmap_free);
  if (hwloc_topology_is_thissystem(topology) && hwloc_get_cpubind(topology, bound.get(), HWLOC_CPUBIND_THREAD) == 0 &&
      hwloc_bitmap_intersects(allowed.get(), bound.get()))
    hwloc_bitmap_and(allowed.get(), allowed.get(), bound.get());
  return allowed;
}

std::vector<placement::Core> cores_of(hwloc_topology_t topology) {
  std::vector<placement::Core> cores;
  const Bitmap allowed = allowed_cpus(topology);
  const int count = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
  for (int i = 0; i < count; ++i) {
    const hwloc_obj_t object = hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, static_cast<unsigned>(i));
    placement::Core core;
    core.node = std::max(0, node_of(object->nodeset));
    unsigned id = 0;
    hwloc_bitmap_foreach_begin(id, object->cpuset) if (hwloc_bitmap_isset(allowed.get(), id))
        core.cpus.push_back(static_cast<int>(id));
    hwloc_bitmap_foreach_end();
    if (!core.cpus.empty()) cores.push_back(std::move(core));
  }
  return cores;
}

std::string info(hwloc_obj_t object, const char* key) {
  const char* text = hwloc_obj_get_info_by_name(object, key);
  return text ? text : "";
}

/// The PCI device's children: the devices that the system shows for it.
void read_os_devices(hwloc_obj_t device, placement::GpuInfo& gpu, std::vector<placement::Nic>& nics, int node) {
  for (hwloc_obj_t child = device->io_first_child; child; child = child->next_sibling) {
    if (child->type != HWLOC_OBJ_OS_DEVICE) continue;
    if (const std::string uuid = info(child, "NVIDIAUUID"); !uuid.empty()) gpu.uuid = uuid;
    if (const std::string model = info(child, "GPUModel"); !model.empty()) gpu.name = model;
    const auto type = child->attr->osdev.type;
    if ((type == HWLOC_OBJ_OSDEV_NETWORK || type == HWLOC_OBJ_OSDEV_OPENFABRICS) && child->name)
      nics.push_back({child->name, node, type == HWLOC_OBJ_OSDEV_OPENFABRICS});
  }
}

/// Returns the kind of path between two PCI devices (placement::pci_path_type()), from their common bridges.
const char* way_between(hwloc_topology_t topology, hwloc_obj_t a, hwloc_obj_t b) {
  const hwloc_obj_t above = hwloc_get_common_ancestor_obj(topology, a, b);
  if (above->type != HWLOC_OBJ_BRIDGE) {
    const int node = node_of(hwloc_get_non_io_ancestor_obj(topology, a)->nodeset);
    return node >= 0 && node == node_of(hwloc_get_non_io_ancestor_obj(topology, b)->nodeset) ? "NODE" : "SYS";
  }
  const auto steps = [above](hwloc_obj_t o) {
    std::size_t n = 0;
    for (; o != above; o = o->parent) ++n;
    return n;
  };
  const bool host = above->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST;
  return placement::pci_path_type(host ? 0 : 1, steps(a), steps(b));
}

/// Returns the number of NVLinks. hwloc reports their total bandwidth: 25 GB/s a link, or 20 in the first version.
int links_of(std::uint64_t megabytes) {
  return static_cast<int>(megabytes % 25000 == 0 ? megabytes / 25000 : megabytes / 20000);
}

/// Joins GPUs by NVLink, directly or through switches, by hwloc's matrix of bandwidths.
void read_nvlinks(hwloc_topology_t topology, const std::map<hwloc_obj_t, std::string>& pci_of,
                  placement::Machine& machine) {
  hwloc_distances_s* d = nullptr;
  unsigned count = 1;
  if (hwloc_distances_get_by_name(topology, "NVLinkBandwidth", &count, &d, 0) != 0 || count == 0) return;
  std::vector<std::string> gpus(d->nbobjs);           // empty: no GPU
  std::vector<std::uint64_t> to_switches(d->nbobjs);  // the sum over all switches
  for (unsigned i = 0; i < d->nbobjs; ++i) {
    hwloc_obj_t device = d->objs[i];
    while (device && device->type != HWLOC_OBJ_PCI_DEVICE) device = device->parent;
    if (const auto gpu = pci_of.find(device); gpu != pci_of.end()) gpus[i] = gpu->second;
    for (unsigned j = 0; j < d->nbobjs; ++j)
      if (d->objs[j] && d->objs[j]->type == HWLOC_OBJ_PCI_DEVICE && !pci_of.contains(d->objs[j]))
        to_switches[i] += d->values[i * d->nbobjs + j];
  }
  for (unsigned i = 0; i < d->nbobjs; ++i)
    for (unsigned j = i + 1; j < d->nbobjs; ++j) {
      if (gpus[i].empty() || gpus[j].empty()) continue;
      const std::uint64_t direct = d->values[i * d->nbobjs + j];
      placement::add_nvlinks(machine, gpus[i], gpus[j],
                             links_of(direct ? direct : std::min(to_switches[i], to_switches[j])));
    }
  hwloc_distances_release(topology, d);
}

void read_devices(hwloc_topology_t topology, placement::Machine& machine) {
  constexpr unsigned nvidia = 0x10de, vga = 0x0300, three_d = 0x0302;
  std::map<hwloc_obj_t, std::string> pci_of;
  for (hwloc_obj_t device = nullptr; (device = hwloc_get_next_pcidev(topology, device)) != nullptr;) {
    const auto& pci = device->attr->pcidev;
    const hwloc_obj_t parent = hwloc_get_non_io_ancestor_obj(topology, device);
    placement::GpuInfo gpu;
    gpu.node = parent ? node_of(parent->nodeset) : -1;
    gpu.name = info(device, "PCIDevice");
    read_os_devices(device, gpu, machine.nics, gpu.node);
    if (pci.vendor_id != nvidia || (pci.class_id != three_d && pci.class_id != vga)) continue;
    char address[32];
    std::snprintf(address, sizeof address, "%04x:%02x:%02x.%01x", static_cast<unsigned>(pci.domain), pci.bus, pci.dev,
                  pci.func);
    gpu.pci = address;
    for (const auto& [other, its] : pci_of)
      machine.ways.push_back({its, gpu.pci, way_between(topology, other, device)});
    pci_of[device] = gpu.pci;
    machine.gpus.push_back(std::move(gpu));
  }
  read_nvlinks(topology, pci_of, machine);
  std::sort(machine.gpus.begin(), machine.gpus.end(), [](const auto& a, const auto& b) { return a.pci < b.pci; });
  for (std::size_t i = 0; i < machine.gpus.size(); ++i) machine.gpus[i].index = static_cast<int>(i);
}

/// The child's part of machine_in_file().
[[noreturn]] void tell_machine(const std::string& path, int to) {
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) ::signal(number, SIG_DFL);
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  ::alarm(30);
  const Topology topology = new_topology();
  if (!topology || hwloc_topology_set_xml(topology.get(), path.c_str()) != 0 ||
      hwloc_topology_set_io_types_filter(topology.get(), HWLOC_TYPE_FILTER_KEEP_IMPORTANT) != 0 ||
      hwloc_topology_load(topology.get()) != 0)
    ::_exit(1);
  placement::Machine machine;
  machine.cores = cores_of(topology.get());
  read_devices(topology.get(), machine);
  ::_exit(write_all(to, placement::machine_to_text(machine)) ? 0 : 1);
}

}  // namespace

std::vector<placement::GpuInfo> usable_gpus(const Environment& environment) {
  std::vector<placement::GpuInfo> gpus = placement::read_gpus();
  const char* visible = environment("CUDA_VISIBLE_DEVICES");
  return visible ? placement::visible_gpus(gpus, visible) : gpus;
}

placement::Machine machine_here(const Environment& environment) {
  placement::Machine machine;
  machine.gpus = usable_gpus(environment);
  machine.nics = placement::read_nics();
  const Topology topology = new_topology();
  if (!topology) return machine;
  // Only cores, threads and memory nodes are needed here.
  hwloc_topology_set_all_types_filter(topology.get(), HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_type_filter(topology.get(), HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_components(topology.get(), HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  if (hwloc_topology_load(topology.get()) == 0) machine.cores = cores_of(topology.get());
  return machine;
}

placement::Machine machine_in_file(const std::string& path) {
  const Error refused(Code::usage, path, "is not a topology that hwloc can read", "write one with: lstopo machine.xml");
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw Error(Code::unavailable, path, "pipe: " + errno_text(errno));
  Fd from(ends[0]), to(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) throw Error(Code::unavailable, path, "fork: " + errno_text(errno));
  if (child == 0) tell_machine(path, to.get());
  to.reset();
  std::string text;
  char piece[4096];
  for (ssize_t n; (n = ::read(from.get(), piece, sizeof piece)) > 0 || (n < 0 && errno == EINTR);)
    if (n > 0) text.append(piece, static_cast<std::size_t>(n));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  const std::optional<placement::Machine> machine = status == 0 ? placement::machine_from_text(text) : std::nullopt;
  if (!machine) throw refused;
  return *machine;
}

}  // namespace hvd::launcher

#include "launcher/place/cores.h"

#include <hwloc.h>

#include <cstdlib>
#include <memory>

namespace hvd::launcher {
namespace {

/// hwloc_topology_init without hwloc's plugins: they look for devices, and bring X11, OpenCL and more into the process.
hwloc_topology_t new_topology() {
  constexpr const char* path = "HWLOC_PLUGINS_PATH";
  const bool ours = std::getenv(path) == nullptr;
  if (ours) setenv(path, "/nonexistent", 0);
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) topology = nullptr;
  if (ours) unsetenv(path);
  return topology;
}

}  // namespace

std::vector<Core> cores_of_this_machine() {
  const hwloc_topology_t raw = new_topology();
  if (raw == nullptr) return {};
  const std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)> topology(raw, hwloc_topology_destroy);
  // Cores, threads and memory nodes are all that is asked for here.
  hwloc_topology_set_all_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  if (hwloc_topology_load(raw) != 0) return {};

  std::vector<Core> cores;
  const hwloc_const_cpuset_t allowed = hwloc_topology_get_allowed_cpuset(raw);
  const int count = hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_CORE);
  for (int i = 0; i < count; ++i) {
    const hwloc_obj_t core = hwloc_get_obj_by_type(raw, HWLOC_OBJ_CORE, static_cast<unsigned>(i));
    Core cpus;
    unsigned id = 0;
    hwloc_bitmap_foreach_begin(id, core->cpuset) if (hwloc_bitmap_isset(allowed, id))
        cpus.push_back(static_cast<int>(id));
    hwloc_bitmap_foreach_end();
    if (!cpus.empty()) cores.push_back(std::move(cpus));
  }
  return cores;
}

}  // namespace hvd::launcher

/// @file gpu_paths.h — the paths between GPUs of one host, in the words of nvidia-smi topo.
///
/// NV<n>: n links of NVLink.  PIX: one PCIe switch.  PXB: several PCIe switches.  PHB: the CPU's PCIe host bridge.
/// NODE: host bridges of one NUMA node.  SYS: several NUMA nodes.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "placement/machine.h"

namespace hvd::placement {

/// The PCIe paths between all pairs of @p gpus, from the folders of their devices in sysfs.  Leaves out GPUs without a
/// PCI address or without a folder.
/// @param root  for tests: the folder that contains sys/; "": the real /sys
std::vector<GpuPath> read_gpu_paths(const std::vector<GpuInfo>& gpus, const std::string& root = "");

/// The version of NVIDIA's kernel driver; empty: not loaded.
std::string read_driver(const std::string& root = "");

/// The path between two devices below one host bridge: "PHB", "PIX" or "PXB".  Pure.
/// @param bridges  number of PCI bridges that are above both devices
/// @param a,b      steps from the lowest of these bridges down to each device.  If each device has a port of one
/// switch: 2
const char* pci_path_type(std::size_t bridges, std::size_t a, std::size_t b);

/// Records that @p links NVLinks connect the GPUs with PCI addresses @p a and @p b.  Replaces the PCIe path.
void add_nvlinks(Machine& machine, const std::string& a, const std::string& b, int links);

/// The path between two GPUs of the machine.  "X": both are parts of one GPU; "?": not known.
std::string gpu_path_between(const Machine& machine, const GpuInfo& a, const GpuInfo& b);

/// A path for people: "NVLink, 18 links" for "NV18".
std::string gpu_path_in_words(const std::string& name);

}  // namespace hvd::placement

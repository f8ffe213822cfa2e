/// @file gpu_paths.h — how far GPUs of one host are from each other, in the words of nvidia-smi topo:
/// NV<n> n links of NVLink; PIX one PCIe switch; PXB several; PHB the CPU's host bridge; NODE host bridges of one NUMA
/// node; SYS several NUMA nodes.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "placement/machine.h"

namespace hvd::placement {

/// Ways over PCIe between all pairs of @p gpus that have an address, by the folders of their devices in sysfs.  Pairs
/// of which nobody knows are left out.
/// @param root  for tests; "" is the real one
std::vector<GpuPath> read_gpu_paths(const std::vector<GpuInfo>& gpus, const std::string& root = "");

/// The version of NVIDIA's driver in the kernel; empty: there is none.
std::string read_driver(const std::string& root = "");

/// The word for two devices below one host bridge.  Pure.
/// @param bridges    PCI bridges that both are below
/// @param a,b        steps from the last of these to each device: 2 for a device at a port of its own of one switch
const char* pci_path_type(std::size_t bridges, std::size_t a, std::size_t b);

/// Records that @p links links of NVLink join @p a and @p b.  They replace any slower path.
void add_nvlinks(Machine& machine, const std::string& a, const std::string& b, int links);

/// The way between two GPUs of the machine: "X" between parts of one; "?" when it is not known.
std::string gpu_path_between(const Machine& machine, const GpuInfo& a, const GpuInfo& b);

/// "NVLink, 18 links" for NV18.
std::string gpu_path_in_words(const std::string& name);

}  // namespace hvd::placement

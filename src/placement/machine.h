/// @file machine.h — the cores, GPUs and network interfaces of one host, with their NUMA nodes.
#pragma once
#include <string>
#include <vector>

namespace hvd::placement {

/// A physical core: the logical CPUs (hardware threads) that this process may use, and the NUMA node.
struct Core {
  std::vector<int> cpus;
  int node = 0;
  bool operator==(const Core&) const = default;
};

/// A GPU of NVIDIA's driver, or one MIG slice of a GPU.
struct GpuInfo {
  std::string pci;   ///< "0000:34:00.0"; empty for a MIG slice whose GPU is not known
  std::string uuid;  ///< "GPU-…" or "MIG-…"; empty: not known
  std::string name;  ///< "Tesla V100-SXM3-32GB"; may be empty
  int index = 0;     ///< among the GPUs of read_gpus(): CUDA's number with CUDA_DEVICE_ORDER=PCI_BUS_ID
  int node = -1;     ///< -1: not known
};

struct Nic {
  std::string name;         ///< "mlx5_0", "eth0"
  int node = -1;            ///< NUMA node; -1: not known, or a virtual interface
  bool infiniband = false;  ///< InfiniBand is preferred
};

/// The path between two GPUs, in nvidia-smi's words: NV<links>, PIX, PXB, PHB, NODE, SYS (gpu_paths.h).
struct GpuPath {
  std::string a, b;  ///< PCI addresses
  std::string name;
};

struct Machine {
  std::vector<Core> cores;    ///< sorted: neighbours share caches and memory
  std::vector<GpuInfo> gpus;  ///< sorted by PCI address
  std::vector<Nic> nics;
  // Shown to users.  this_machine() leaves these empty.
  std::vector<GpuPath> ways{};  ///< paths between pairs of GPUs
  std::string driver{};         ///< version of NVIDIA's driver: "580.65.06"
  std::string nccl{};           ///< version of NCCL: "2.30.7"
};

/// The GPUs of NVIDIA's driver that this process may open.  Reads only /proc and /sys, and the modes of /dev/nvidia*.
/// So the driver does not start the GPUs, and no library is loaded.
/// @param root  for tests: the folder that contains proc/, sys/ and dev/; "": the real folders
std::vector<GpuInfo> read_gpus(const std::string& root = "");
/// All InfiniBand devices, and the network interfaces that are up except loopback.
std::vector<Nic> read_nics(const std::string& root = "");

/// The cores that this process may use, from sysfs and its affinity mask.  A cgroup's cpuset limits the mask.
std::vector<Core> read_cores(const std::string& root = "");
/// The cores of the given logical CPUs.
std::vector<Core> read_cores(const std::string& root, const std::vector<int>& allowed);

Machine this_machine();

/// The GPUs that a value of CUDA_VISIBLE_DEVICES names, in its order.  Entries are numbers, UUIDs or their beginnings,
/// and MIG slices.  As in CUDA, the first entry that does not name exactly one GPU ends the list.
std::vector<GpuInfo> visible_gpus(const std::vector<GpuInfo>& gpus, const std::string& visible_devices);

}  // namespace hvd::placement

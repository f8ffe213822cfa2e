/// @file machine.h — one host as placement sees it: cores, GPUs, network interfaces, and their distances.
#pragma once
#include <string>
#include <vector>

namespace hvd::placement {

/// A physical core: its logical CPUs (hardware threads) that this process may use, and its NUMA node.
struct Core {
  std::vector<int> cpus;
  int node = 0;
  bool operator==(const Core&) const = default;
};

/// A GPU that the driver serves, or one MIG slice of it.
struct GpuInfo {
  std::string pci;   ///< "0000:34:00.0"; empty for a MIG slice whose GPU is not known
  std::string uuid;  ///< "GPU-…" or "MIG-…"; empty: not known
  std::string name;  ///< "Tesla V100-SXM3-32GB"; may be empty
  int index = 0;     ///< among all GPUs of the host by PCI address: CUDA's number with CUDA_DEVICE_ORDER=PCI_BUS_ID
  int node = -1;     ///< -1: not known
};

struct Nic {
  std::string name;         ///< "mlx5_0", "eth0"
  int node = -1;            ///< -1: not known, or no hardware
  bool infiniband = false;  ///< preferred
};

/// How two GPUs reach each other, by nvidia-smi's word for it: NV<links>, PIX, PXB, PHB, NODE, SYS (gpu_paths.h).
struct GpuPath {
  std::string a, b;  ///< PCI addresses
  std::string name;
};

struct Machine {
  std::vector<Core> cores;    ///< neighbours share caches and memory
  std::vector<GpuInfo> gpus;  ///< by PCI address
  std::vector<Nic> nics;
  // For people to read, filled only on request:
  std::vector<GpuPath> ways{};  ///< of pairs of GPUs
  std::string driver{};         ///< NVIDIA's, "580.65.06"
  std::string nccl{};           ///< "2.30.7"
};

/// GPUs in the NVIDIA driver's list whose device files this process can open; and network interfaces that are up.
/// Reads only /proc and /sys: wakes no driver and loads no library.
/// @param root  for tests; "" is the real one
std::vector<GpuInfo> read_gpus(const std::string& root = "");
std::vector<Nic> read_nics(const std::string& root = "");

/// Cores that this process may use, from its affinity mask (which cgroup cpusets bound) and sysfs.
std::vector<Core> read_cores(const std::string& root = "");
/// The same for a given mask.
std::vector<Core> read_cores(const std::string& root, const std::vector<int>& allowed);

Machine this_machine();

/// The GPUs that CUDA_VISIBLE_DEVICES leaves, in its order: numbers, (beginnings of) UUIDs, MIG slices.  Like CUDA it
/// stops at the first entry that names none.
std::vector<GpuInfo> visible_gpus(const std::vector<GpuInfo>& gpus, const std::string& visible_devices);

}  // namespace hvd::placement

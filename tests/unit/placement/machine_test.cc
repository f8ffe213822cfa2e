#include "placement/machine.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "root.h"

using namespace hvd::placement;
namespace fs = std::filesystem;

namespace {

std::string names(const std::vector<GpuInfo>& gpus) {
  std::string out;
  for (const GpuInfo& g : gpus) out += (g.uuid.empty() ? g.pci : g.uuid) + "@" + std::to_string(g.node) + " ";
  return out;
}

}  // namespace

TEST_CASE("machine: GPUs are those that the driver lists and that can be opened, in PCI order") {
  const Root root;
  CHECK(read_gpus(root.path).empty());
  root.gpu("0000:b1:00.0", 0, 1);
  root.gpu("0000:34:00.0", 2, 0);
  root.gpu("0000:9a:00.0", 1, 1, false);  // another container's
  const std::vector<GpuInfo> gpus = read_gpus(root.path);
  CHECK(names(gpus) == "GPU-34aa@0 GPU-b1aa@1 ");
  CHECK(gpus[0].name == "NVIDIA H100");
  CHECK(gpus[1].index == 1);
}

TEST_CASE("machine: CUDA_VISIBLE_DEVICES") {
  const std::vector<GpuInfo> gpus = {{"0000:01:00.0", "GPU-aa11", "A", 0, 0}, {"0000:02:00.0", "GPU-bb22", "A", 1, 1}};
  CHECK(names(visible_gpus(gpus, "1,0")) == "GPU-bb22@1 GPU-aa11@0 ");
  CHECK(names(visible_gpus(gpus, "GPU-bb")) == "GPU-bb22@1 ");
  CHECK(names(visible_gpus(gpus, "0,7,1")) == "GPU-aa11@0 ");  // stops where CUDA stops
  CHECK(visible_gpus(gpus, "").empty());
  CHECK(visible_gpus(gpus, "-1").empty());
  CHECK(visible_gpus(gpus, "GPU-").empty());  // not unique
  CHECK(names(visible_gpus(gpus, "MIG-GPU-bb22/1/0,MIG-77")) == "MIG-GPU-bb22/1/0@1 MIG-77@-1 ");
  CHECK(visible_gpus({}, "MIG-77").empty());
}

TEST_CASE("machine: cores are grouped by package, node and core id") {
  const Root root;
  for (int cpu = 0; cpu < 8; ++cpu) {
    const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu);
    root.file(folder + "/topology/physical_package_id", std::to_string(cpu % 4 / 2));
    root.file(folder + "/topology/core_id", std::to_string(cpu % 2));
    root.file(folder + "/node" + std::to_string(cpu % 4 / 2) + "/x", "");
  }
  const std::vector<Core> cores = read_cores(root.path, {0, 1, 2, 3, 4, 5, 6});
  CHECK(cores == std::vector<Core>{{{0, 4}, 0}, {{1, 5}, 0}, {{2, 6}, 1}, {{3}, 1}});
  CHECK_FALSE(read_cores().empty());
}

TEST_CASE("machine: network interfaces that are up") {
  const Root root;
  root.file("/sys/class/net/lo/operstate", "unknown\n");
  root.file("/sys/class/net/eth0/operstate", "up\n");
  root.file("/sys/class/net/eth1/operstate", "down\n");
  root.file("/sys/class/net/eth0/device/numa_node", "1\n");
  root.file("/sys/class/infiniband/mlx5_0/device/numa_node", "0\n");
  const std::vector<Nic> nics = read_nics(root.path);
  REQUIRE(nics.size() == 2);
  CHECK(nics[0].name == "mlx5_0");
  CHECK(nics[0].infiniband);
  CHECK(nics[1].name == "eth0");
  CHECK(nics[1].node == 1);
}

#include "placement/gpu_paths.h"

#include <doctest/doctest.h>

#include "base/text.h"
#include "root.h"

using namespace hvd;
using namespace hvd::placement;

TEST_CASE("ways: PCIe, by the folders of sysfs") {
  Root root;
  std::vector<GpuInfo> gpus;
  const auto gpu = [&](const std::string& folder, int node) {
    root.device(folder);
    gpus.push_back({folder.substr(folder.rfind('/') + 1), "", "", static_cast<int>(gpus.size()), node});
  };
  const std::string port = "pci0000:00/0000:00:01.0/", up = port + "0000:01:00.0/";
  gpu(up + "0000:02:00.0/0000:03:00.0", 0);                            // 0 and 1 at two ports of one switch
  gpu(up + "0000:02:01.0/0000:04:00.0", 0);                            //
  gpu(up + "0000:02:02.0/0000:05:00.0/0000:06:00.0/0000:07:00.0", 0);  // 2 below one more switch
  gpu("pci0000:00/0000:00:02.0/0000:08:00.0", 0);                      // 3 at another port of the CPU
  gpu("pci0000:40/0000:40:01.0/0000:41:00.0", 0);                      // 4 at another bridge of the node
  gpu("pci0000:80/0000:80:01.0/0000:81:00.0", 1);                      // 5 at another node
  gpus.push_back({"0000:ff:00.0", "", "", 6, 1});                      // 6 has no folder
  gpus.push_back({"", "MIG-1", "", 7, -1});
  Machine machine{{}, gpus, {}};
  machine.ways = read_gpu_paths(gpus, root.path);
  std::string names;
  for (std::size_t i = 1; i < gpus.size(); ++i) names += " " + gpu_path_between(machine, gpus[0], gpus[i]);
  CHECK(names == " PIX PXB PHB NODE SYS ? ?");
  CHECK(gpu_path_between(machine, gpus[5], gpus[4]) == "SYS");
  CHECK(gpu_path_between(machine, gpus[1], gpus[1]) == "X");
  CHECK(machine.ways.size() == 15);
  add_nvlinks(machine, gpus[1].pci, gpus[0].pci, 4);
  add_nvlinks(machine, gpus[1].pci, gpus[2].pci, 0);
  CHECK(gpu_path_between(machine, gpus[0], gpus[1]) == "NV4");
  CHECK(gpu_path_between(machine, gpus[1], gpus[2]) == "PXB");
  CHECK(machine.ways.size() == 15);
}

TEST_CASE("ways: the driver's version") {
  const auto version = [](const char* file, const std::string& text) {
    Root root;
    root.file(file, text);
    return read_driver(root.path);
  };
  CHECK(version("/sys/module/nvidia/version", "580.65.06\n") == "580.65.06");
  CHECK(version("/proc/driver/nvidia/version",
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  525.147.05  Wed Oct 25 20:27:35 UTC 2023\n"
                "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n") == "525.147.05");
  CHECK(
      version("/proc/driver/nvidia/version",
              "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (builder@host)  Sun "
              "Jul 27 06:54:38 UTC 2025\n") == "580.65.06");
  CHECK(version("/x", "").empty());
}

TEST_CASE("ways: in words") {
  CHECK(gpu_path_in_words("NV18") == "NVLink, 18 links");
  CHECK(gpu_path_in_words("NV1") == "NVLink, 1 link");
  CHECK(gpu_path_in_words("SYS") == "the link between NUMA nodes");
  CHECK(gpu_path_in_words("new") == "new");
}

/// @file root.h — a root folder of files, as /proc and /sys have them.
#pragma once
#include <filesystem>
#include <fstream>
#include <string>

#include "../temp_folder.h"

struct Root : hvd::test::TempFolder {
  void file(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(path + name).parent_path());
    std::ofstream(path + name) << text;
  }
  void gpu(const std::string& pci, int minor, int node, bool usable = true) const {
    file("/proc/driver/nvidia/gpus/" + pci + "/information",
         "Model: \t\t NVIDIA H100\nIRQ:   \t\t 45\nGPU UUID: \t GPU-" + pci.substr(5, 2) + "aa\nDevice Minor: \t " +
             std::to_string(minor) + "\n");
    file("/sys/bus/pci/devices/" + pci + "/numa_node", std::to_string(node) + "\n");
    if (usable) file("/dev/nvidia" + std::to_string(minor), "");
  }
  /// The device at the end of @p folder below /sys/devices, as sysfs links it.
  void device(const std::string& folder) const {
    std::filesystem::create_directories(path + "/sys/devices/" + folder);
    std::filesystem::create_directories(path + "/sys/bus/pci/devices");
    std::filesystem::create_directory_symlink("../../../devices/" + folder,
                                              path + "/sys/bus/pci/devices/" + folder.substr(folder.rfind('/') + 1));
  }
};

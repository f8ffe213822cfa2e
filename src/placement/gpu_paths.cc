#include "placement/gpu_paths.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/format.h"
#include "base/text.h"

namespace hvd::placement {

namespace {

namespace fs = std::filesystem;

/// The folders from the host bridge down to a device.  For /sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0 they are
/// "pci0000:00", "0000:00:01.0", "0000:01:00.0".  Empty if there is no such device.
std::vector<std::string> steps_to(const std::string& root, const std::string& pci) {
  std::error_code error;
  const fs::path real = fs::canonical(root + "/sys/bus/pci/devices/" + pci, error);
  std::vector<std::string> steps;
  if (error) return steps;
  for (const fs::path& part : real)
    if (!steps.empty() || part.string().starts_with("pci")) steps.push_back(part.string());
  return steps;
}

/// The first word of the line that is a version number: digits and dots.
std::string version_in(const std::string& line) {
  for (const std::string& word : words(line))
    if (word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos) return word;
  return {};
}

bool joins(const GpuPath& way, const std::string& a, const std::string& b) {
  return (way.a == a && way.b == b) || (way.a == b && way.b == a);
}

}  // namespace

const char* pci_path_type(std::size_t bridges, std::size_t a, std::size_t b) {
  if (bridges == 0) return "PHB";
  return std::max(a, b) <= 2 ? "PIX" : "PXB";
}

std::vector<GpuPath> read_gpu_paths(const std::vector<GpuInfo>& gpus, const std::string& root) {
  std::vector<std::vector<std::string>> steps;
  for (const GpuInfo& g : gpus) steps.push_back(g.pci.empty() ? std::vector<std::string>{} : steps_to(root, g.pci));
  std::vector<GpuPath> ways;
  for (std::size_t i = 0; i < gpus.size(); ++i)
    for (std::size_t j = i + 1; j < gpus.size(); ++j) {
      if (steps[i].empty() || steps[j].empty() || gpus[i].pci == gpus[j].pci) continue;
      const auto [a, b] = std::mismatch(steps[i].begin(), steps[i].end(), steps[j].begin(), steps[j].end());
      const auto common = static_cast<std::size_t>(a - steps[i].begin());
      const char* name = common ? pci_path_type(common - 1, steps[i].size() - common, steps[j].size() - common)
                         : gpus[i].node >= 0 && gpus[i].node == gpus[j].node ? "NODE"
                                                                             : "SYS";
      ways.push_back({gpus[i].pci, gpus[j].pci, name});
    }
  return ways;
}

// The line of the open kernel module has more words before the version than the line of the proprietary module.
std::string read_driver(const std::string& root) {
  const std::string version = version_in(first_line(root + "/sys/module/nvidia/version"));
  return version.empty() ? version_in(first_line(root + "/proc/driver/nvidia/version")) : version;
}

void add_nvlinks(Machine& machine, const std::string& a, const std::string& b, int links) {
  if (links <= 0) return;
  std::erase_if(machine.ways, [&](const GpuPath& way) { return joins(way, a, b); });
  machine.ways.push_back({a, b, formatted("NV{}", links)});
}

std::string gpu_path_between(const Machine& machine, const GpuInfo& a, const GpuInfo& b) {
  if (!a.pci.empty() && a.pci == b.pci) return "X";
  for (const GpuPath& way : machine.ways)
    if (joins(way, a.pci, b.pci)) return way.name;
  return "?";
}

std::string gpu_path_in_words(const std::string& name) {
  static constexpr std::pair<std::string_view, std::string_view> all[] = {{"PIX", "one PCIe switch"},
                                                                          {"PXB", "several PCIe switches"},
                                                                          {"PHB", "the CPU's PCIe host bridge"},
                                                                          {"NODE", "PCIe within a NUMA node"},
                                                                          {"SYS", "the link between NUMA nodes"},
                                                                          {"X", "parts of one GPU"},
                                                                          {"?", "not known"}};
  if (name.starts_with("NV"))
    return "NVLink, " + count_of(to_integer(std::string_view(name).substr(2)).value_or(0), "link");
  for (const auto& [word, text] : all)
    if (word == name) return std::string(text);
  return name;
}

}  // namespace hvd::placement

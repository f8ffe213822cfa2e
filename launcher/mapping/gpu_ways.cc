#include "launcher/mapping/gpu_ways.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/format.h"
#include "base/text.h"
#include "placement/gpu_paths.h"

namespace hvd::launcher {

namespace {

/// The ways between all pairs of GPUs, without pairs of parts of one GPU; empty: none is known.
std::vector<std::string> names_of(const placement::Machine& machine) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < machine.gpus.size(); ++i)
    for (std::size_t j = i + 1; j < machine.gpus.size(); ++j)
      if (std::string way = placement::gpu_path_between(machine, machine.gpus[i], machine.gpus[j]); way != "X")
        names.push_back(std::move(way));
  if (std::all_of(names.begin(), names.end(), [](const std::string& n) { return n == "?"; })) names.clear();
  return names;
}

/// Counts equal @p names; the most frequent first, then by name.
std::vector<std::pair<std::string, int>> counted(const std::vector<std::string>& names) {
  std::map<std::string, int> count;
  for (const std::string& n : names) ++count[n];
  std::vector<std::pair<std::string, int>> out(count.begin(), count.end());
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return out;
}

std::string padded(const std::string& text, std::size_t width) {
  return text + std::string(width - std::min(width, text.size()), ' ');
}

/// The ways between any two GPUs, by CUDA's numbers.
std::string matrix_of(const placement::Machine& machine) {
  std::size_t width = 4;
  for (const placement::GpuPath& way : machine.ways) width = std::max(width, way.name.size());
  const auto row = [&](const std::string& head, const auto& cell) {
    std::string line = "  " + padded(head, 12);
    for (const placement::GpuInfo& to : machine.gpus) line += "  " + padded(cell(to), width);
    return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  std::string out = row("between GPUs", [](const placement::GpuInfo& to) { return std::to_string(to.index); });
  for (const placement::GpuInfo& from : machine.gpus)
    out += row(formatted("           {}", from.index), [&](const placement::GpuInfo& to) {
      return &from == &to ? "X" : placement::gpu_path_between(machine, from, to);
    });
  return out;
}

}  // namespace

std::string versions_text(const placement::Machine& machine) {
  std::string out;
  if (!machine.driver.empty()) out = "NVIDIA driver " + machine.driver;
  if (!machine.nccl.empty()) out += (out.empty() ? "NCCL " : ", NCCL ") + machine.nccl;
  return out;
}

std::string count_ways(const std::vector<std::string>& names) {
  std::string out;
  for (const auto& [name, count] : counted(names))
    out +=
        formatted("{}{} by {}", out.empty() ? "" : "; ", count_of(count, "pair"), placement::gpu_path_in_words(name));
  return out;
}

std::string ways_text(const placement::Machine& machine) {
  if (machine.gpus.empty()) return {};
  std::string out;
  if (const std::string versions = versions_text(machine); !versions.empty()) out = "  " + versions + "\n";
  const auto ways = counted(names_of(machine));
  if (ways.empty()) return out;
  if (ways.size() == 1)
    return formatted("{}  between any two GPUs: {} ({})\n", out, placement::gpu_path_in_words(ways[0].first),
                     ways[0].first);
  std::vector<std::string> legend;
  for (const auto& [name, count] : ways) legend.push_back(name + ": " + placement::gpu_path_in_words(name));
  return formatted("{}{}  {}\n", out, matrix_of(machine), join(legend, "; "));
}

void add_gpus(nlohmann::ordered_json& host, const placement::Machine& machine) {
  using nlohmann::ordered_json;
  if (!machine.driver.empty()) host["driver"] = machine.driver;
  if (!machine.nccl.empty()) host["nccl"] = machine.nccl;
  ordered_json gpus = ordered_json::array();
  const bool known = !names_of(machine).empty();
  for (const placement::GpuInfo& g : machine.gpus) {
    ordered_json gpu{{"index", g.index}, {"pci", g.pci}, {"uuid", g.uuid}, {"name", g.name}, {"numa_node", g.node}};
    ordered_json ways = ordered_json::array();
    for (const placement::GpuInfo& to : machine.gpus)
      if (known && &to != &g) ways.push_back({{"to", to.index}, {"way", placement::gpu_path_between(machine, g, to)}});
    gpu["ways"] = std::move(ways);
    gpus.push_back(std::move(gpu));
  }
  host["gpus"] = std::move(gpus);
}

}  // namespace hvd::launcher

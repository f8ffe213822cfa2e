#include "rank/machine_report.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "placement/gpu_paths.h"
#include "placement/machine_text.h"
#include "rank/diagnostics/nvml.h"
#include "rank/launch/binding.h"

namespace hvd::rank {

namespace {

constexpr auto most_time = std::chrono::seconds(8);  // without persistence mode, the driver first starts each GPU

struct NvlinkPair {
  std::string a, b;  ///< PCI addresses
  int links = 0;
};

/// The number of NVLinks between each two GPUs.  Counts direct links.  For GPUs with links to switches, the number is
/// the smaller of the two GPUs' numbers of such links.
std::vector<NvlinkPair> nvlinks_of(const std::vector<placement::GpuInfo>& gpus) {
  Nvml nvml;
  std::vector<NvlinkPair> out;
  if (!nvml.open()) return out;
  std::map<std::string, std::vector<Nvml::Link>> links;
  for (const placement::GpuInfo& g : gpus)
    if (!g.pci.empty() && !links.contains(g.pci))
      if (const auto device = nvml.device(g.pci)) links[g.pci] = nvml.links(*device);
  const auto to_switches = [](const std::vector<Nvml::Link>& all) {
    return std::count_if(all.begin(), all.end(), [](const auto& l) { return l.to == Nvml::Peer::nvswitch; });
  };
  for (auto a = links.begin(); a != links.end(); ++a)
    for (auto b = std::next(a); b != links.end(); ++b) {
      const auto direct =
          std::count_if(a->second.begin(), a->second.end(), [&](const auto& l) { return l.pci == b->first; });
      const auto through = std::min(to_switches(a->second), to_switches(b->second));
      out.push_back({a->first, b->first, static_cast<int>(direct ? direct : through)});
    }
  return out;
}

}  // namespace

int print_machine(const Environment& mine) {
  placement::Machine machine = visible_machine(mine);
  machine.ways = placement::read_gpu_paths(machine.gpus);
  machine.driver = placement::read_driver();
  if (machine.gpus.size() > 1) {
    std::packaged_task<std::vector<NvlinkPair>()> ask([gpus = machine.gpus] { return nvlinks_of(gpus); });
    auto answer = ask.get_future();
    std::thread(std::move(ask)).detach();
    if (answer.wait_for(most_time) == std::future_status::ready)
      for (const NvlinkPair& j : answer.get()) placement::add_nvlinks(machine, j.a, j.b, j.links);
  }
  const bool written = std::fputs(placement::machine_to_text(machine).c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return written ? 0 : 1;
}

}  // namespace hvd::rank

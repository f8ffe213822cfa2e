#include "placement.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <tuple>

namespace hvd::rank {
namespace {

std::vector<int> allowed_cpus() {
  std::vector<cpu_set_t> set(16);  // 16384 CPUs
  const std::size_t bytes = set.size() * sizeof(cpu_set_t);
  std::vector<int> cpus;
  if (sched_getaffinity(0, bytes, set.data()) != 0) return cpus;
  for (std::size_t cpu = 0; cpu < bytes * 8; ++cpu)
    if (CPU_ISSET_S(cpu, bytes, set.data())) cpus.push_back(static_cast<int>(cpu));
  return cpus;
}

int read_number(const std::string& path, int otherwise) {
  std::ifstream file(path);
  int n = otherwise;
  file >> n;
  return file ? n : otherwise;
}

}  // namespace

std::vector<Core> allowed_cores(const std::string& sysfs) {
  std::map<std::tuple<int, int>, Core> cores;  // by package and core id: neighbours share caches and memory
  for (const int cpu : allowed_cpus()) {
    const std::string topology = sysfs + "/cpu" + std::to_string(cpu) + "/topology/";
    const int package = read_number(topology + "physical_package_id", 0);
    cores[{package, read_number(topology + "core_id", cpu)}].push_back(cpu);
  }
  std::vector<Core> out;
  for (auto& [key, core] : cores) out.push_back(std::move(core));
  return out;
}

std::vector<int> share(const std::vector<Core>& cores, int local_rank, int local_size) {
  const auto n = static_cast<int>(cores.size());
  if (n < local_size) return {};
  const auto start = [&](int rank) { return rank * (n / local_size) + std::min(rank, n % local_size); };
  std::vector<int> cpus;
  for (int i = start(local_rank); i < start(local_rank + 1); ++i)
    cpus.insert(cpus.end(), cores[static_cast<std::size_t>(i)].begin(), cores[static_cast<std::size_t>(i)].end());
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

Binding plan_binding(const wire::RankManifest& m) {
  Binding b;
  int threads = 0;
  if (!m.placement.cpus.empty()) {
    b.cpus = m.placement.cpus;
    threads = static_cast<int>(b.cpus.size());
  } else {
    const std::vector<Core> cores = allowed_cores();
    b.cpus = share(cores, m.local_rank, m.local_size);
    threads = static_cast<int>(cores.size()) / m.local_size;  // one a core: hyper-threads seldom help
  }
  b.threads = m.placement.threads > 0 ? m.placement.threads : std::max(1, threads);
  if (!m.placement.bind) b.cpus.clear();
  return b;
}

}  // namespace hvd::rank

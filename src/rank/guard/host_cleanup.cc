#include "rank/guard/host_cleanup.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <vector>

#include "base/files/leftovers.h"
#include "base/format.h"
#include "base/load.h"
#include "base/process/process.h"

namespace hvd::rank {
namespace {

/// All processes of this host with the environment of a rank of @p job, anywhere in the tree of processes.  Killed
/// guards leave such processes.
KilledProcesses strays(const std::string& job) {
  KilledProcesses found;
  const std::string mark = '\0' + ("HVD_JOB=" + job) + '\0', rank_mark = std::string(1, '\0') + "HVD_LINK_FD=";
  for (auto& [pid, process] : all_processes()) {
    if (process.is_zombie()) continue;
    std::ifstream file(formatted("/proc/{}/environ", pid), std::ios::binary);
    if (!file) continue;
    const std::string text = '\0' + std::string(std::istreambuf_iterator<char>(file), {});
    // Watchdogs, guards and mpirun's daemon do not have the variable HVD_LINK_FD.
    if (text.find(mark) != text.npos && text.find(rank_mark) != text.npos) found.emplace(pid, std::move(process.name));
  }
  return found;
}

}  // namespace

wire::CleanupResult sweep_host(const std::string& job, double since_seconds) {
  const auto limit = std::chrono::milliseconds(static_cast<int>(1000 * load_factor()));
  const auto end = std::chrono::steady_clock::now() + limit;
  KilledProcesses killed, left = strays(job);
  for (; !left.empty() && std::chrono::steady_clock::now() < end; left = strays(job)) {
    for (const auto& [pid, name] : left) ::kill(pid, SIGKILL);
    killed.merge(left);
    ::usleep(5000);
  }
  wire::CleanupResult swept;
  for (const auto& [pid, name] : killed) swept.ended.push_back(name);
  for (const auto& [pid, name] : left) swept.left.push_back(formatted("{} {}", pid, name));
  swept.files = remove_shared_memory_leftovers(since_seconds);
  return swept;
}

}  // namespace hvd::rank

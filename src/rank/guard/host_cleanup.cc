#include "rank/guard/host_cleanup.h"

#include <unistd.h>

#include <chrono>
#include <csignal>

#include "base/format.h"
#include "base/leftovers.h"
#include "base/load.h"
#include "rank/guard/descendants.h"

namespace hvd::rank {

wire::CleanupResult sweep_host(const std::string& job, double since_seconds) {
  const auto limit = std::chrono::milliseconds(static_cast<int>(1000 * load_factor()));
  const auto end = std::chrono::steady_clock::now() + limit;
  KilledProcesses killed;
  std::vector<pid_t> left = strays(job);
  for (; !left.empty() && std::chrono::steady_clock::now() < end; left = strays(job)) {
    for (const pid_t pid : left)
      if (std::string name = name_of(pid); !name.empty()) killed.emplace(pid, std::move(name)), kill(pid, SIGKILL);
    usleep(5000);
  }
  wire::CleanupResult swept;
  for (const auto& [pid, name] : killed) swept.ended.push_back(name);
  for (const pid_t pid : left) swept.left.push_back(formatted("{} {}", pid, name_of(pid)));
  swept.files = remove_shared_memory_leftovers(since_seconds);
  return swept;
}

}  // namespace hvd::rank

#include "launcher/supervise/end/job_cleanup.h"

#include <algorithm>

#include "base/files/leftovers.h"
#include "base/load.h"
#include "base/process/process.h"

namespace hvd::launcher {

void JobCleanup::finish(const JobMap& map, const std::vector<wire::DeathRecord>& deaths, double started_wall_seconds,
                        const std::set<std::string>& emptied) {
  // A killed process ends when it gets a processor, which takes seconds at loads of 30 and more.
  const auto kill_limit = std::chrono::milliseconds(static_cast<int>(3000 * load_factor()));
  const auto finished = std::count_if(deaths.begin(), deaths.end(),
                                      [](const wire::DeathRecord& d) { return d.cause == wire::Cause::finished; });
  HostCleanup here{true, {}};
  // A subreaper without children has no descendants.  So success proves that no process is left.
  KilledProcesses killed;
  if (!kill_descendants(kill_limit, &killed)) here.swept.left = {"look for them with ps -ef"};
  for (const auto& [pid, name] : killed) here.swept.ended.push_back(name);
  if (static_cast<std::size_t>(finished) != map.ranks.size())
    here.swept.files = remove_shared_memory_leftovers(started_wall_seconds - 1);
  for (const MappedHost& h : map.hosts) {
    HostCleanup& host = hosts_[h.name];
    if (h.local) host = here;
    if (emptied.contains(h.name)) host.looked_at = true;
  }
  std::map<std::string, std::int64_t> gpu_bytes;
  for (const wire::DeathRecord& d : deaths) {
    std::int64_t& bytes = gpu_bytes[d.host];
    bytes = bytes < 0 || d.gpu_bytes_left < 0 ? -1 : bytes + d.gpu_bytes_left;
  }
  for (const auto& [host, bytes] : gpu_bytes) hosts_[host].gpu_bytes = bytes;
  for (const wire::DeathRecord& d : deaths) {
    std::vector<std::string>& ended = hosts_[d.host].swept.ended;
    ended.insert(ended.end(), d.ended.begin(), d.ended.end());
  }
}

}  // namespace hvd::launcher

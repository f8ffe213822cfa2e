/// @file job_cleanup.h — removes a job's leftovers, and records them by host.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "launcher/mapping/job_map.h"
#include "launcher/verdict/cleanup_report.h"
#include "wire/messages/death.h"

namespace hvd::launcher {

/// hvdrun itself looks for leftovers on this host.  On each other host a guard does: the event HostSwept.
class JobCleanup {
 public:
  void add(const std::string& host, const wire::CleanupResult& swept) { hosts_[host] = {true, swept}; }
  /// Kills this process's descendants.  After a failure also removes files that ranks have left in /dev/shm since
  /// @p started_wall_seconds.  Call it once, after the starter's end.  Takes a few seconds at most.
  /// @param emptied  hosts that need no look: all their guards have reported that no process is left below them
  void finish(const JobMap& map, const std::vector<wire::DeathRecord>& deaths, double started_wall_seconds,
              const std::set<std::string>& emptied);
  const std::map<std::string, HostCleanup>& hosts() const { return hosts_; }  ///< by name

 private:
  std::map<std::string, HostCleanup> hosts_;
};

}  // namespace hvd::launcher

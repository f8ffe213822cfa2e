/// @file job_cleanup.h — removes what is left of a job, and knows for each host what that was.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "launcher/mapping/job_map.h"
#include "launcher/verdict/cleanup_report.h"
#include "wire/messages/death.h"

namespace hvd::launcher {

/// hvdrun itself looks over this host; on each other host a guard does, and its answer is an event of the session.
class JobCleanup {
 public:
  /// A guard has looked over its host.
  void add(const std::string& host, const wire::CleanupResult& swept) { hosts_[host] = {true, swept}; }
  /// Kills what is still below this process and, after a failure, removes what ranks left in /dev/shm since
  /// @p started_wall_seconds.  Call it once, when mpirun has ended.  A few seconds at most.
  /// @param emptied  hosts on which nobody needs to look: all guards told that nothing was left below them
  void finish(const JobMap& map, const std::vector<wire::DeathRecord>& deaths, double started_wall_seconds,
              const std::set<std::string>& emptied);
  const std::map<std::string, HostCleanup>& hosts() const { return hosts_; }  ///< by name

 private:
  std::map<std::string, HostCleanup> hosts_;
};

}  // namespace hvd::launcher

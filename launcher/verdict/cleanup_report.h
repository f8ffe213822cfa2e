/// @file cleanup_report.h — the text about processes and files that a job left on its hosts after its ranks ended.
/// Pure.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "wire/messages/cleanup_result.h"

namespace hvd::launcher {

/// One host after the job.
struct HostCleanup {
  bool looked_at = false;  ///< hvdrun (on its own host) or a guard (on other hosts) has looked
  wire::CleanupResult swept;
  std::int64_t gpu_bytes = -1;  ///< memory on GPUs that ended ranks still have; -1: not known for one rank or more
};

/// One line for each host with processes that could not be ended, or GPU memory that was not freed.  Then one line with
/// the names of the hosts that no process could examine.
std::vector<std::string> trouble_lines(const std::map<std::string, HostCleanup>& hosts);

/// One line for each host with processes that were ended or files that were removed.  For example: "on h2 sleep (2
/// processes) had to be ended; 3 files were removed from /dev/shm".  Then one line that counts the hosts that were
/// examined and have no process left.  If all ranks of these hosts are known to have freed their GPU memory, the line
/// says so.
std::vector<std::string> cleanup_lines(const std::map<std::string, HostCleanup>& hosts);

}  // namespace hvd::launcher

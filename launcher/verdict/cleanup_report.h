/// @file cleanup_report.h — in words: what a job had left on each host when its ranks had ended, and whether it could
/// be removed.  Pure.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "wire/messages/cleanup_result.h"

namespace hvd::launcher {

/// One host after the job.
struct HostCleanup {
  bool looked_at = false;  ///< by hvdrun on its own host, by a guard on others
  wire::CleanupResult swept;
};

/// One line for each host where something could not be ended, and one for those where nobody could look.
std::vector<std::string> trouble_lines(const std::map<std::string, HostCleanup>& hosts);

/// One line for each host where something had to be ended or removed: "on h2 sleep (2 processes) had to be ended; 3
/// files were removed from /dev/shm", and one that names the hosts on which nothing is left.
std::vector<std::string> cleanup_lines(const std::map<std::string, HostCleanup>& hosts);

}  // namespace hvd::launcher

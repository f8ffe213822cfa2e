/// @file start_failure.h — why a job did not come up, by the output of ssh and the starter.  Pure but for
/// read_ssh_logs().
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace hvd::launcher {

struct StartFailureFacts {
  std::vector<std::string> absent_hosts;  ///< hosts with ranks that did not report, each once
  std::vector<int> absent_ranks;
  std::map<std::string, std::string> ssh_logs;  ///< by host: output of ssh and the daemon
  std::string starter = "mpirun";               ///< RankStarter::name()
  std::string starter_output;
  double waited_seconds = 0;
  bool timed_out = false;   ///< false: the starter has ended by itself
  std::string starter_end;  ///< "ended with exit code 213"
};

/// The error to end with: Code::timeout or Code::unavailable.  The error names the failed host, if the facts show one.
Error start_failure(const StartFailureFacts& facts);

/// Returns one line with the reason for which the daemon of a host has not connected.
/// @param said    output of ssh and the host's shell so far
/// @param status  waitpid(2)'s status of the shell; nothing: the shell still runs
std::string why_no_daemon(const std::string& host, const std::string& said, std::optional<int> status);

/// Logs that our agents left in @p folder.
std::map<std::string, std::string> read_ssh_logs(const std::string& folder);

}  // namespace hvd::launcher

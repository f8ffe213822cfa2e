/// @file start_failure.h — why a job did not come up, from what ssh and mpirun said.  Pure but for read_ssh_logs().
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
  std::map<std::string, std::string> ssh_logs;  ///< host → what ssh and the daemon said
  std::string starter = "mpirun";               ///< as messages have it
  std::string starter_output;
  double waited_seconds = 0;
  bool timed_out = false;   ///< else the starter ended by itself
  std::string starter_end;  ///< "ended with exit code 213"
};

/// The error to end with: Code::timeout or Code::unavailable, naming the host where one is to blame.
Error start_failure(const StartFailureFacts& facts);

/// One line: why the daemon of one host has not come.
/// @param said    by ssh and the host's shell, so far
/// @param status  as waitpid(2) has it; nothing: its shell still runs
std::string why_no_daemon(const std::string& host, const std::string& said, std::optional<int> status);

/// Logs that our agents left in @p folder.
std::map<std::string, std::string> read_ssh_logs(const std::string& folder);

/// @p text without blank lines and mpirun's rules of dashes, at most @p most lines: those that name a fault, and the
/// last.
std::vector<std::string> telling_lines(const std::string& text, std::size_t most);

/// What MPI in a rank told mpirun alone, the first lines first: what is wrong comes before what that may mean.  Empty
/// when there is nothing but mpirun's own words about a rank's end.
std::vector<std::string> first_words(const std::string& all_output);

}  // namespace hvd::launcher

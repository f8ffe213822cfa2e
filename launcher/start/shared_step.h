/// @file shared_step.h — one srun that starts the daemons of many hosts: its script, its command, its output.
///
/// Separate steps would cost Slurm's controller one allocation for each host, and this host one process for each.
/// All tasks of the step get the same script.  srun labels each line of output with the task's number.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hvd::launcher {

/// The command for all of @p hosts, from the words for one host (find_allocation()'s for Slurm).  Empty: the words are
/// not those for Slurm, or the list of hosts is too long for an argument.  Pure.
std::vector<std::string> shared_step_command(const std::vector<std::string>& launch_agent,
                                             const std::vector<std::string>& hosts);

/// The script: sets HVD_HOST and $hvd_ranks by the node's name, runs @p script, and tells how it ended.  Pure.
/// @param ranks  by host, comma-separated
std::string shared_step_script(const std::vector<std::pair<std::string, std::string>>& ranks,
                               const std::string& script);

/// Sorts the lines of the step by host.
class SharedStepOutput {
 public:
  /// Takes a piece of output.
  void add(std::string_view piece);
  /// By host: the output of its shell.
  const std::map<std::string, std::string>& logs() const { return logs_; }
  /// By host: waitpid()'s status of a shell that has ended.
  const std::map<std::string, int>& ended() const { return ended_; }

 private:
  void add_line(std::string_view line);

  std::string rest_;
  std::map<std::string, std::string, std::less<>> host_of_;  ///< by the task's number
  std::map<std::string, std::string> logs_;
  std::map<std::string, int> ended_;
};

}  // namespace hvd::launcher

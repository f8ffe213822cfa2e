/// @file mpirun_starter.h — mpirun as the starter of a job's ranks.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "launcher/process/child_process.h"
#include "launcher/start/rank_starter.h"

namespace hvd::launcher {

class MpirunStarter : public RankStarter {
 public:
  /// Throws Error{unavailable} when mpirun cannot be executed.
  MpirunStarter(const std::vector<std::string>& command, const std::map<std::string, std::string>& environment)
      : process_(command, environment) {}

  std::string name() const override { return "mpirun"; }
  std::vector<pid_t> children() const override { return {process_.pid()}; }
  std::vector<int> output_fds() const override { return {process_.output_fd()}; }
  std::string read_output() override { return process_.read_output(); }
  const std::string& output() const override { return process_.output(); }
  std::optional<int> status() override { return process_.status(); }
  void signal(int number) override { process_.signal(number); }
  void close_to_strangers(bool complete) override;

 private:
  ChildProcess process_;
  bool is_closed_ = false;
};

}  // namespace hvd::launcher

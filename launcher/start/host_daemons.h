/// @file host_daemons.h — hvdrank's daemon on each host of a job: our own starter of ranks.
///
/// This machine's daemon is a child, which forks the guards and is the PMIx server of their ranks
/// (src/rank/host/host_daemon.h).
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launcher/process/child_process.h"
#include "launcher/start/rank_starter.h"

namespace hvd::launcher {

/// The daemon's command for a host.  Pure.  @param ranks  of that host, by local rank
std::vector<std::string> daemon_command(const std::string& rank_program, const std::vector<int>& ranks);

class HostDaemons : public RankStarter {
 public:
  /// Throws Error{unavailable} when hvdrank cannot be executed.
  /// @param command      daemon_command() of this host
  /// @param environment  with the job's keys
  HostDaemons(const std::vector<std::string>& command, const std::map<std::string, std::string>& environment)
      : local_(command, environment) {}

  std::string name() const override { return "the host daemon"; }
  std::vector<pid_t> children() const override { return {local_.pid()}; }
  std::vector<int> output_fds() const override { return {local_.output_fd()}; }
  std::string read_output() override { return local_.read_output(); }
  const std::string& output() const override { return local_.output(); }
  std::optional<int> status() override { return local_.status(); }
  void signal(int number) override { local_.signal(number); }
  /// The daemon closes PMIx's port itself, when the ranks have connected (src/pmix/gate.h).
  void close_to_strangers(bool) override {}

 private:
  ChildProcess local_;
};

}  // namespace hvd::launcher

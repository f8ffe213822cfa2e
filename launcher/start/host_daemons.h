/// @file host_daemons.h — hvdrank's daemon on each host of a job: our own starter of ranks.
///
/// This machine's daemon is a child process.  A daemon forks the guards, and starts the PMIx server of their ranks
/// (src/rank/host/host_daemon.h).  On another host, a shell (over ssh) starts the daemon.  The shell reads its script
/// from standard input, so that the job's secret is in no argument.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launcher/process/child_process.h"
#include "launcher/start/rank_starter.h"
#include "launcher/start/shared_step.h"

namespace hvd::launcher {

/// The daemon's command for a host.  Pure.
/// @param ranks  the host's ranks, by local rank
/// @param mpi_folder  the folder of Open MPI's libraries; empty: the dynamic loader finds them
/// @param elastic     ranks come and go, and have no MPI
std::vector<std::string> daemon_command(const std::string& rank_program, const std::vector<int>& ranks,
                                        const std::string& mpi_folder, bool elastic = false);

/// The command that starts the daemon of one host.
struct DaemonStart {
  std::string host;
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;
  std::string input;         ///< the script for a shell on another host; empty: `command` is the daemon
  bool may_hand_on = false;  ///< the command may end well while the daemon runs: it gives the script to another process
  std::vector<std::string> hosts{};  ///< shared_step.h: the command starts the daemons of all of these
};

/// The state of the process that starts a host's daemon.
struct DaemonReport {
  std::optional<int> status{};  ///< waitpid(2)'s, if the process has ended and no daemon can run
  std::string said{};           ///< output of that process, and of the shell on the host
};

class HostDaemons : public RankStarter {
 public:
  /// Starts the daemons of other hosts first.  Throws Error{unavailable} when a command cannot be executed.
  explicit HostDaemons(const std::vector<DaemonStart>& starts);
  /// Throws Error{unavailable} when the command cannot be executed.
  void add(const DaemonStart& start);
  /// Takes a place in the order of add() for a daemon that cannot be started.
  void add_unstarted(const std::string& host) { daemons_.push_back({host, false, nullptr}); }
  /// @param daemon  by the order of add(), from 0
  DaemonReport report(std::size_t daemon);

  std::string name() const override { return "the host daemon"; }
  std::vector<pid_t> children() const override;
  std::vector<int> output_fds() const override;
  std::string read_output() override;
  const std::string& output() const override { return output_; }
  std::optional<int> status() override;
  void signal(int number) override;
  std::map<std::string, std::string> host_logs() const override;
  std::map<std::string, int> ended_hosts() override;
  bool has_handed_on() override;
  /// Does nothing: each daemon closes its PMIx port itself, once its ranks have connected (src/pmix/gate.h).
  void close_to_strangers(bool) override {}

 private:
  struct StartedDaemon {
    std::string host;
    bool may_hand_on;
    std::unique_ptr<ChildProcess> process;  ///< null: add_unstarted()
    std::vector<std::string> hosts{};       ///< of a shared step
    SharedStepOutput step{};
  };
  void start(std::size_t place, const DaemonStart& start);

  std::vector<StartedDaemon> daemons_;
  Fd outputs_;  ///< an epoll descriptor for the output of all daemons: there may be thousands
  std::string output_;
};

}  // namespace hvd::launcher

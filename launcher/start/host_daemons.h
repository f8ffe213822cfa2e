/// @file host_daemons.h — hvdrank's daemon on each host of a job: our own starter of ranks.
///
/// This machine's daemon is a child, which forks the guards and is the PMIx server of their ranks
/// (src/rank/host/host_daemon.h).  Another host's is reached by a shell there (ssh), which gets its script on standard
/// input: the job's secret is in no argument.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launcher/process/child_process.h"
#include "launcher/start/rank_starter.h"

namespace hvd::launcher {

/// The daemon's command for a host.  Pure.  @param ranks  of that host, by local rank; @param mpi_folder  where Open
/// MPI's libraries lie, empty: the loader's own folders; @p elastic  the job's ranks come and go, without MPI
std::vector<std::string> daemon_command(const std::string& rank_program, const std::vector<int>& ranks,
                                        const std::string& mpi_folder, bool elastic = false);

/// How one host's daemon is started.
struct DaemonStart {
  std::string host;
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;
  std::string input;         ///< the script of a shell on another host; empty: the daemon itself is started
  bool may_hand_on = false;  ///< the command may end well while the daemon runs: it has given the script to another
};

/// How the process through which a host's daemon was started fares.
struct DaemonReport {
  std::optional<int> status{};  ///< what waitpid(2) said, where it has ended and no daemon can be there
  std::string said{};           ///< by it, and by the shell on the host
};

class HostDaemons : public RankStarter {
 public:
  /// Throws Error{unavailable} when one cannot be executed.
  explicit HostDaemons(const std::vector<DaemonStart>& starts);
  /// One more.
  void add(const DaemonStart& start);
  /// @param daemon  in the order in which they were added, from 0
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
  /// Each daemon closes its PMIx port itself, when its ranks have connected (src/pmix/gate.h).
  void close_to_strangers(bool) override {}

 private:
  struct StartedDaemon {
    std::string host;
    bool may_hand_on;
    std::unique_ptr<ChildProcess> process;
  };
  std::vector<StartedDaemon> daemons_;
  Fd outputs_;  ///< an epoll descriptor of what they write: there may be thousands
  std::string output_;
};

}  // namespace hvd::launcher

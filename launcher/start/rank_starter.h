/// @file rank_starter.h — the processes that start the guards of a job: one mpirun, or a host daemon on each host.
///
/// These processes live as long as the guards.  After their end, no more guards come.
#pragma once
#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace hvd::launcher {

class RankStarter {
 public:
  virtual ~RankStarter() = default;
  /// The starter's name in messages: "mpirun", "the host daemon".
  virtual std::string name() const = 0;
  /// The starting processes that are children of this process.
  virtual std::vector<pid_t> children() const = 0;
  /// Descriptors that are readable when a process has written something.
  virtual std::vector<int> output_fds() const = 0;
  /// Reads without waiting; returns the new output.
  virtual std::string read_output() = 0;
  /// The last 64 KiB of all output.
  virtual const std::string& output() const = 0;
  /// waitpid(2)'s status once all processes have ended.  If some ended badly, the status of one of these.
  virtual std::optional<int> status() = 0;
  virtual void signal(int number) = 0;
  /// Returns the output of each host's shell and daemon. mpirun mixes the hosts' output, so its result is empty.
  virtual std::map<std::string, std::string> host_logs() const { return {}; }
  /// The hosts on which the starting process has ended, with its status.  No more guards come from these hosts.  mpirun
  /// reports no hosts.
  virtual std::map<std::string, int> ended_hosts() { return {}; }
  /// True if a process has passed its task to another one and ended well.  status() does not know the other one.
  virtual bool has_handed_on() { return false; }
  /// Closes the sockets on which guards and daemons are accepted.
  /// @param complete  all ranks have come; else only sockets that no other host needs are closed
  virtual void close_to_strangers(bool complete) = 0;
};

}  // namespace hvd::launcher

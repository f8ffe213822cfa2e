/// @file rank_starter.h — the processes that start the guards of a job: one mpirun, or a host daemon on each host.
///
/// They live as long as the guards: after their end no guard will come.
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
  /// For messages: "mpirun", "the host daemon".
  virtual std::string name() const = 0;
  /// Those that are our children.
  virtual std::vector<pid_t> children() const = 0;
  /// Descriptors that are readable when a process has written something.
  virtual std::vector<int> output_fds() const = 0;
  /// Reads without waiting; returns the new output.
  virtual std::string read_output() = 0;
  /// The last 64 KiB of all output.
  virtual const std::string& output() const = 0;
  /// waitpid(2)'s status once all processes have ended: of one that ended badly, if any did.
  virtual std::optional<int> status() = 0;
  virtual void signal(int number) = 0;
  /// By host: the output of its shell and daemon.  mpirun's output is not known by host.
  virtual std::map<std::string, std::string> host_logs() const { return {}; }
  /// Hosts whose process has ended, with its status: no other guard will come from there.  Unknown with mpirun.
  virtual std::map<std::string, int> ended_hosts() { return {}; }
  /// A process has ended well after it gave its task to another one, which status() does not know.
  virtual bool has_handed_on() { return false; }
  /// Closes the sockets on which guards and daemons are accepted.
  /// @param complete  all ranks have come; else only sockets that no other host needs are closed
  virtual void close_to_strangers(bool complete) = 0;
};

}  // namespace hvd::launcher

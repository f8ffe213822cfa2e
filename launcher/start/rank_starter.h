/// @file rank_starter.h — the processes through which the guards of a job come up, as the supervisor sees them.
///
/// One mpirun, or our own daemon on each host.  They live as long as the guards: when they end, nobody else will come.
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
  /// As messages have it: "mpirun", "the host daemon".
  virtual std::string name() const = 0;
  /// Our children among them.
  virtual std::vector<pid_t> children() const = 0;
  /// Readable when they have written something.
  virtual std::vector<int> output_fds() const = 0;
  /// Reads what is there; returns what is new.
  virtual std::string read_output() = 0;
  /// The last 64 KiB of it.
  virtual const std::string& output() const = 0;
  /// What waitpid(2) said, once all have ended: of one that ended badly, if there is one.
  virtual std::optional<int> status() = 0;
  virtual void signal(int number) = 0;
  /// What each host's shell and daemon have written, where that is known by host.
  virtual std::map<std::string, std::string> host_logs() const { return {}; }
  /// Hosts whose process has ended, where that is known: whoever has not come from there will not come.
  virtual std::map<std::string, int> ended_hosts() { return {}; }
  /// A process has ended well, and what it was to start may run on: status() says nothing of that.
  virtual bool has_handed_on() { return false; }
  /// Closes to strangers what listens for guards and for each other.  @p complete  all ranks have come; else only what
  /// no other host needs may be closed.
  virtual void close_to_strangers(bool complete) = 0;
};

}  // namespace hvd::launcher

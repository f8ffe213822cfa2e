/// @file guard_table.h — the guards of a host daemon: starts them, signals them, and knows the living ones.
///
/// Only one thread uses the table.  The process must have no other thread when start() forks.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/process/stopped_children.h"
#include "rank/launch/rank_environment.h"

namespace hvd::rank {

class GuardTable {
 public:
  /// Forks a guard for @p rank.  The local rank is the number of guards that were started before.
  /// @param call     of the host daemon
  /// @param meeting  the rank's socket for meetings
  /// @param channel  the guard's end of a connection to the daemon; none: the guard connects to hvdrun
  /// Throws Error{unavailable}.
  void start(const LaunchContext& call, int rank, Fd meeting, Fd channel);

  /// Guards that were started, by local rank.
  std::size_t size() const { return guards_.size(); }
  int rank(std::size_t local_rank) const { return guards_[local_rank].rank; }
  /// Returns the local rank of a rank.  Nothing: no guard of this host has the rank.
  std::optional<std::size_t> local_rank(int rank) const;
  std::vector<pid_t> living() const;
  void signal(int number) const;
  /// Marks the guard of the reaped process @p pid as ended and returns its rank.  Nothing: the process was no guard.
  std::optional<int> take_end(pid_t pid);
  /// The rank of the living guard @p pid; -1: the process is no guard.
  int rank_of(pid_t pid) const;
  /// Children of the daemon that a signal has stopped: guards, and the PMIx server.
  StoppedChildren& stopped() { return stopped_; }
  const StoppedChildren& stopped() const { return stopped_; }

  /// The guard still waits for the variables of its rank.
  bool awaits_environment(std::size_t local_rank) const { return bool(guards_[local_rank].environment); }
  bool any_awaits_environment() const;
  /// @p variables  "NAME=value" texts, each ended by a zero byte.  Call it once for each guard.
  void give_environment(std::size_t local_rank, std::string_view variables);

 private:
  struct GuardProcess {
    int rank = -1;
    pid_t pid = 0;   ///< 0: has ended
    Fd environment;  ///< a stream to the guard; its end is the end of the variables
  };
  std::vector<GuardProcess> guards_;
  StoppedChildren stopped_;
};

}  // namespace hvd::rank

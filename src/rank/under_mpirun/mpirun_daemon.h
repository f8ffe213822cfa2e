/// @file mpirun_daemon.h — mpirun's daemon on this host (orted or prted), the parent of the watchdogs.
///
/// hvdrun may be out of reach for good.  The daemon would then wait for the network to come back, so the last guard of
/// the host ends it.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <optional>

namespace hvd::rank {

/// Decides when mpirun's daemon is ended.  Pure: the caller gives the time and carries out the order.
class DaemonEnd {
 public:
  using Time = std::chrono::steady_clock::time_point;

  static constexpr auto others_may_end = std::chrono::milliseconds(5000);  ///< other guards of this host
  static constexpr auto daemon_may_end = std::chrono::milliseconds(1000);  ///< after SIGTERM

  enum class Order { wait, terminate, kill, done };
  /// @param reported_at     when this guard has written its death record
  /// @param daemon_is_there  false on mpirun's own host, and once the daemon has ended
  Order next(Time now, Time reported_at, bool daemon_is_there, bool has_other_children);

 private:
  std::optional<Time> asked_at_;
};

/// mpirun's daemon on this host, as seen by a guard whose parent is a watchdog.
class MpirunDaemon {
 public:
  /// Closes the daemon's listening sockets, once all ranks of the job have come.
  static void close_listeners();
  /// Call it in each round of a guard that has reported and lost hvdrun.  True when the guard may end.
  bool end(DaemonEnd::Time now, DaemonEnd::Time reported_at);

 private:
  DaemonEnd end_;
};

}  // namespace hvd::rank

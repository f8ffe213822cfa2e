/// @file stopped_children.h — which children of this process a signal has stopped, and for how long.
///
/// Time in which this process is stopped too does not count: somebody stops and continues the whole job.  Only one
/// thread uses it.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <map>
#include <vector>

namespace hvd {

class StoppedChildren {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr auto limit = std::chrono::milliseconds(5000);  ///< the caller continues the child after this time

  /// Takes a result of waitpid() with WUNTRACED and WCONTINUED.  False: the child has ended.
  bool take(pid_t pid, int status, Time now);
  /// Asks the kernel which children of this process have stopped or go on, and leaves their ends alone.
  void look(Time now);
  bool are_any() const { return !stopped_.empty(); }
  /// Returns the children that have been stopped for longer than the limit, once for each stop.  Call it every second
  /// while are_any().
  std::vector<pid_t> overdue(Time now);

 private:
  std::map<pid_t, std::chrono::nanoseconds> stopped_;  ///< how long
  Time counted_until_{};
};

}  // namespace hvd

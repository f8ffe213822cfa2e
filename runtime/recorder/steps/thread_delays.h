/// @file thread_delays.h — the share of time for which a thread of this process waited for a core.
///
/// The training thread may wait for a thread of its framework's pool, as in JAX.  Where cores are short, that thread
/// waits for a core, and the training thread seems to be asleep.  The source is /proc/self/task/*/schedstat.
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace hvd::recorder {

/// One thread at a time.
class ThreadDelays {
 public:
  ThreadDelays() : ThreadDelays("/proc/self/task") {}
  /// For tests.  @p tasks: a folder in the format of /proc/self/task.
  explicit ThreadDelays(std::string tasks) : tasks_(std::move(tasks)) {}
  /// Reads all threads' delays if the last reading is a second old.  Returns the share (0 to 1) for which the thread
  /// with the longest delay had no core between the last two readings. 0: fewer than two readings.  @p now: the present
  /// time in ns, on any clock.
  double share(std::int64_t now);

 private:
  void read(std::int64_t now);

  const std::string tasks_;
  std::map<std::string, std::int64_t> delay_;  ///< by the thread's number: at the last reading
  std::int64_t read_ns_ = 0;                   ///< time of the last reading; 0: none
  double share_ = 0;
};

}  // namespace hvd::recorder

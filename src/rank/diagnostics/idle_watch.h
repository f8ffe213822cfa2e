/// @file idle_watch.h — the time for which a rank has neither computed nor written output.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstdint>

namespace hvd::rank {

/// The work of a rank and of the processes below it since their start.
struct RankUse {
  std::int64_t cpu_ns = 0;         ///< processor time of all threads
  std::uint64_t read_written = 0;  ///< bytes of their read() and write() calls
  std::uint64_t printed = 0;       ///< bytes of the rank's output
  bool gpu_computes = false;
};

/// Reads cpu_ns and read_written from /proc.  A process that /proc does not show counts as nothing.
RankUse use_below(pid_t rank);

/// Tells from measurements how long a rank has been idle.  A rank that polls a file or a store a few times a second is
/// idle.  Pure; one thread.
class IdleWatch {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr auto period = std::chrono::seconds(10);

  /// True once a period: the caller then measures, and calls take().
  bool is_due(Clock::time_point now) const { return now >= due_; }
  void take(const RankUse& use, Clock::time_point now);
  /// Seconds until the last measurement; 0: the rank was busy in the last period.
  double seconds() const { return std::chrono::duration<double>(last_ - idle_since_).count(); }

 private:
  RankUse before_;
  Clock::time_point due_{}, last_{}, idle_since_{};
};

}  // namespace hvd::rank

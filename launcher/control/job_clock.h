/// @file job_clock.h — a clock for limits on ranks.  The clock does not advance while the job is stopped.
#pragma once
#include <optional>

namespace hvd::launcher {

/// Pure: the caller passes the time of monotonic_seconds(), which never decreases.
class JobClock {
 public:
  explicit JobClock(double now) : turned_at_(now) {}

  /// Call it often.  After more than `longest_between_turns` without a call, hvdrun was stopped.
  void turn(double now) {
    if (!paused_at_ && now - turned_at_ > longest_between_turns) stopped_ += now - turned_at_;
    turned_at_ = now;
  }
  /// hvdrun has stopped all ranks (true), or lets them go on.
  void pause(bool paused, double now) {
    if (!paused && paused_at_) stopped_ += now - *paused_at_;
    if (!paused)
      paused_at_.reset();
    else if (!paused_at_)
      paused_at_ = now;
  }
  /// Seconds, from the origin of monotonic_seconds().
  double seconds(double now) const { return paused_at_.value_or(now) - stopped_; }

 private:
  static constexpr double longest_between_turns = 5;
  double turned_at_, stopped_ = 0;
  std::optional<double> paused_at_;
};

}  // namespace hvd::launcher

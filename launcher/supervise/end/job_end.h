/// @file job_end.h — how far a job has come, and what is due when it ends.  Pure: the caller's clock comes in.
///
/// Ranks come up; they work; they end, within a deadline; their starter ends, within a deadline.  After a deadline that
/// gets SIGTERM, then SIGKILL, each with a second to act.
#pragma once
#include <chrono>
#include <optional>

namespace hvd::launcher {

/// In this order; each is left once.
enum class JobPhase { starting, running, stopping, draining };

class JobEnd {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  JobPhase phase() const { return phase_; }
  /// The ranks are to live on.
  bool goes_on() const { return phase_ < JobPhase::stopping; }

  void all_have_come() { phase_ = JobPhase::running; }
  /// The ranks are told to end.  @p all_have_guards  else the starter ends those without one, at once
  void stop(Time now, bool all_have_guards, double grace_seconds);
  /// The user asks for the second time: the grace period is cut short.
  void stop_at_once(Time now);
  /// All ranks have ended.  @p cut_off  a host whose daemon cannot end is among them; @p failed  a rank has failed
  /// @param patience  factor for the limits that follow: base/load.h
  void drain(Time now, bool cut_off, bool failed, double patience = 1);
  void starter_has_ended(Time now) { starter_ended_at_ = now; }

  bool starter_ended() const { return starter_ended_at_.has_value(); }
  /// The starter's end may be our doing.
  bool starter_was_signalled() const { return signals_sent_ > 0; }
  /// The starter has gone, and the guards that have not reported since will not.
  bool guards_are_late(Time now) const;
  /// The signal that the starter is to get now: SIGTERM, then SIGKILL; 0: none.  Counts it as sent.
  int due_signal(Time now);
  /// Whether due_signal() would act.
  bool is_late(Time now) const { return deadline_ && now >= *deadline_; }
  /// @p hosts_open  hosts that have not said yet what was left on them
  bool is_over(Time now, int hosts_open) const;

 private:
  std::chrono::milliseconds stretched(std::chrono::milliseconds limit) const;

  JobPhase phase_ = JobPhase::starting;
  std::optional<Time> deadline_, starter_ended_at_;
  int signals_sent_ = 0;  ///< to the starter
  double patience_ = 1;
};

}  // namespace hvd::launcher

/// @file job_end.h — the phases of a job, and the deadlines of its end.  Pure: the caller passes its clock.
///
/// First the ranks start, then they work.  The ranks end within a deadline, and their starter within another deadline.
/// After the starter's deadline, the starter gets SIGTERM, then SIGKILL, each with a second to act.
#pragma once
#include <chrono>
#include <optional>

namespace hvd::launcher {

/// In this order.  A job never returns to an earlier phase.
enum class JobPhase { starting, running, stopping, draining };

class JobEnd {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  JobPhase phase() const { return phase_; }
  /// The ranks are to live on.
  bool goes_on() const { return phase_ < JobPhase::stopping; }

  void all_have_come() { phase_ = JobPhase::running; }
  /// The ranks are told to end.  @param all_have_guards  false: the starter must end ranks without a guard, at once
  void stop(Time now, bool all_have_guards, double grace_seconds);
  /// The user has asked a second time: the grace period is cut short.
  void stop_at_once(Time now);
  /// All ranks have ended.
  /// @param cut_off   a host is out of reach, so its daemon does not end
  /// @param failed    a rank has failed
  /// @param patience  factor for later limits: base/load.h
  void drain(Time now, bool cut_off, bool failed, double patience = 1);
  void starter_has_ended(Time now) { starter_ended_at_ = now; }

  bool starter_ended() const { return starter_ended_at_.has_value(); }
  /// The starter may have ended because of our signal.
  bool starter_was_signalled() const { return signals_sent_ > 0; }
  /// The starter has ended some time ago: guards that have not reported will not report.
  bool guards_are_late(Time now) const;
  /// The signal to send to the starter now: SIGTERM, then SIGKILL; 0: none.  Counts the signal as sent.
  int due_signal(Time now);
  /// A deadline is over: due_signal() may return a signal.
  bool is_late(Time now) const { return deadline_ && now >= *deadline_; }
  /// @param hosts_open  number of hosts that have not reported their leftovers
  bool is_over(Time now, int hosts_open) const;

 private:
  std::chrono::milliseconds stretched(std::chrono::milliseconds limit) const;

  JobPhase phase_ = JobPhase::starting;
  std::optional<Time> deadline_, starter_ended_at_;
  int signals_sent_ = 0;  ///< to the starter
  double patience_ = 1;
};

}  // namespace hvd::launcher

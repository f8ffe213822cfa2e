/// @file ending.h — ends a job: tells the ranks to stop, then the starter, within their limits; keeps why.
#pragma once
#include <chrono>
#include <csignal>
#include <string>
#include <vector>

#include "launcher/control/session.h"
#include "launcher/job/job.h"
#include "launcher/output/printer.h"
#include "launcher/supervise/end/job_end.h"
#include "launcher/supervise/start/arrivals.h"
#include "launcher/supervise/start/job_launch.h"
#include "launcher/verdict/verdict.h"

namespace hvd::launcher {

class Ending {
 public:
  using Clock = std::chrono::steady_clock;
  /// @param started_at  when hvdrun started, for --time-limit
  Ending(const Job& job, Clock::time_point started_at, Session& session, JobLaunch& launch, Arrivals& arrivals,
         Printer& printer);

  JobPhase phase() const { return end_.phase(); }
  /// The ranks are to live on.
  bool goes_on() const { return end_.goes_on(); }
  const EndReason& reason() const { return reason_; }
  void all_have_come() { end_.all_have_come(); }

  // Reasons to end the job.  Only the first one counts, but for stop_for_signal():
  void stop(const std::string& reason, int signal = SIGTERM);
  /// hvdrun got this signal.  The second one cuts the grace period short.
  void stop_for_signal(int number);
  /// Standard output cannot be written.  @p error  errno
  void stop_for_output(int error);
  void stop_for_hang(const std::string& why);
  void stop_elastic(const std::string& why);
  /// Keeps the messages and the data of a hang that still lasts, for the verdict.
  void keep_waits(const std::vector<std::string>& lines, const std::optional<OpenHang>& hang) {
    reason_.waits = lines;
    reason_.open_hang = hang;
  }

  /// One turn of the loop, after all events.  @param outlives_its_ranks  new ranks will be started though all have
  /// ended
  void turn(bool outlives_its_ranks);
  bool is_over() const { return end_.is_over(Clock::now(), session_.sweeps_open()); }
  /// The longest sleep that keeps --time-limit.
  std::chrono::milliseconds time_to_limit(std::chrono::milliseconds longest) const;
  /// The job is over: completes reason().
  const EndReason& conclude();

 private:
  RankStarter& starter() const { return *launch_.starter(); }
  bool starter_has_ended() const;
  void take_starter_end();
  void drain();
  void check_deadlines();
  void look_for_lost_host();

  const Job& job_;
  const Clock::time_point started_at_;
  Session& session_;
  JobLaunch& launch_;
  Arrivals& arrivals_;
  Printer& printer_;
  const double grace_seconds_;
  JobEnd end_;
  EndReason reason_;
};

}  // namespace hvd::launcher

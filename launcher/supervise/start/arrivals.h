/// @file arrivals.h — waits for a job's ranks to come up, and says why they do not.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "launcher/control/job_clock.h"
#include "launcher/control/session.h"
#include "launcher/job/job.h"
#include "launcher/output/printer.h"
#include "launcher/supervise/start/job_launch.h"

namespace hvd::launcher {

class Arrivals {
 public:
  using Clock = std::chrono::steady_clock;
  /// @param folder  the job's, with the logs of ssh
  Arrivals(const Job& job, std::string folder, Session& session, JobLaunch& launch, Printer& printer,
           const JobClock& clock);

  /// Takes a guard's hello.  Throws Error{unavailable} if mpirun has started the rank on another host than planned.
  void greet(const wire::Hello& hello);
  /// Notes that a rank's program runs, or is about to.
  void tell_start(int rank, const wire::StartReport& report);
  /// One turn of the loop, until it returns true: all have come.  Throws as fail() when one will not come, or is late.
  bool turn();
  /// Call it in each turn once all have come.  Closes hvdrun and the starter to further connections, within a few
  /// seconds after the last rank has come.
  void close_to_strangers();
  /// Throws the error with the reason for which ranks did not start.
  [[noreturn]] void fail(bool timed_out);

 private:
  void tell_progress(const std::vector<int>& absent);

  const Job& job_;
  const std::string folder_;
  Session& session_;
  JobLaunch& launch_;
  Printer& printer_;
  std::string warned_host_;  ///< the last host that was said to have another version
  const JobClock& clock_;
  const double started_at_;  ///< by clock_
  Clock::time_point next_progress_, close_at_{};
  bool is_closed_ = false;
};

}  // namespace hvd::launcher

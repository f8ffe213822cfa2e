/// @file supervisor.h — the life of one job.  One thread, one loop.
///
/// Each part decides by itself. start/ starts the ranks; watch/ and hang/ follow them. serve/ answers users and passes
/// streams on. end/ ends the job and reports.  The supervisor only runs the loop.  event_table.cc gives each event to
/// its parts.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "launcher/control/commands/job_folder.h"
#include "launcher/control/job_clock.h"
#include "launcher/control/session.h"
#include "launcher/events/job_event.h"
#include "launcher/hang/hang_watch.h"
#include "launcher/job/job.h"
#include "launcher/output/printer.h"
#include "launcher/process/signal_queue.h"
#include "launcher/supervise/end/ending.h"
#include "launcher/supervise/end/job_cleanup.h"
#include "launcher/supervise/serve/job_server.h"
#include "launcher/supervise/serve/streams.h"
#include "launcher/supervise/start/arrivals.h"
#include "launcher/supervise/start/elastic_part.h"
#include "launcher/supervise/start/job_launch.h"
#include "launcher/supervise/watch/job_findings.h"
#include "launcher/supervise/watch/job_timeline.h"
#include "launcher/supervise/watch/kept_operations.h"
#include "launcher/supervise/watch/reports.h"

namespace hvd::launcher {

class Supervisor {
 public:
  explicit Supervisor(Job& job);
  /// Runs the job to its end and returns hvdrun's exit code.  Before it throws an Error it tries to end all ranks.
  int run();

 private:
  using Clock = std::chrono::steady_clock;

  /// The parts that need a session.  Each may use the parts declared before it.
  struct Parts {
    explicit Parts(Supervisor& owner, const EventSink& events);

    Arrivals arrivals;
    Ending ending;
    Reports reports;
    KeptOperations operations;
    std::unique_ptr<ElasticPart> elastic;  ///< null: the job is not elastic
    JobServer server;
    HangWatch watch;
    JobFindings findings;
  };

  void start();
  void loop();
  void wait_for_events();
  double job_seconds() const { return clock_.seconds(monotonic_seconds()); }
  std::chrono::milliseconds time_to_sleep() const;
  /// Guards' frames may be received: the streams have room, or the job is ending.
  bool may_receive() const { return !parts_->ending.goes_on() || !streams_.is_full(); }
  void on_signal(int number);
  void abandon() noexcept;
  int conclude();

  // event_table.cc:
  void on_event(const JobEvent& event);
  void on_death(const wire::DeathRecord& death);
  void on_lost_guard(const GuardEnded& end);
  void on_continued_guard(const GuardContinued& e);
  void on_move(const HostMoved& move);
  void on_world(const WorldMet& met);
  void on_missing_pmix(const PmixMissing& missing);
  /// Asks all ranks for their last operations and tells the user where these differ.
  void tell_difference();

  Job& job_;
  const Clock::time_point started_at_;
  JobClock clock_;
  const double started_wall_seconds_;
  SignalQueue signals_;  // declared before any member that starts a thread: threads inherit the blocked signals
  Printer printer_;
  JobFolder folder_;
  JobTimeline timeline_;
  Streams streams_;
  JobLaunch launch_;
  std::unique_ptr<Session> session_;  ///< null until the starter runs
  std::unique_ptr<Parts> parts_;      ///< null until start() has made all parts
  JobCleanup cleanup_;
  std::vector<std::string> mpi_problem_;      ///< lines: why a host serves no MPI
  std::vector<std::string> told_difference_;  ///< the last lines of tell_difference()
};

}  // namespace hvd::launcher

/// @file supervisor.h — the life of one job.  One thread, one loop.
///
/// start.cc, supervisor.cc (the loop, with events.cc) and conclude.cc are its three parts, in the order of a job's
/// life. What they are made of decides, each by itself: rank_manifests and starter_environment (starting), hang/
/// (watching), job_end (ending), job_cleanup (cleaning up), final_words and verdict/ (reporting).  The supervisor gives
/// them what happens and carries out what they decide.
#pragma once
#include <chrono>
#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/control/commands/job_folder.h"
#include "launcher/control/rank_input.h"
#include "launcher/control/result_stream.h"
#include "launcher/control/session.h"
#include "launcher/hang/hang_watch.h"
#include "launcher/job/job.h"
#include "launcher/job/script_servers.h"
#include "launcher/output/printer.h"
#include "launcher/process/signal_queue.h"
#include "launcher/report/live_report.h"
#include "launcher/report/metrics/metrics_file.h"
#include "launcher/report/report_readers.h"
#include "launcher/start/rank_starter.h"
#include "launcher/supervise/end/job_cleanup.h"
#include "launcher/supervise/end/job_end.h"
#include "launcher/supervise/serve/job_server.h"
#include "launcher/supervise/start/elastic_part.h"
#include "launcher/supervise/watch/job_timeline.h"
#include "launcher/supervise/watch/kept_operations.h"
#include "launcher/supervise/watch/otlp_sender.h"
#include "launcher/verdict/verdict.h"

namespace hvd::launcher {

class Supervisor {
 public:
  explicit Supervisor(Job& job);
  /// hvdrun's exit code.
  int run();

 private:
  using Clock = std::chrono::steady_clock;
  static double seconds_now() { return static_cast<double>(monotonic_ns()) / 1e9; }
  void start();
  SessionEvents events();
  DaemonEvents daemon_events();

  void loop();
  void wait_for_events();
  bool more_will_come() const;
  bool may_receive() const;
  std::chrono::milliseconds time_to_sleep() const;
  void on_signal(int number);
  void on_starter_output();
  bool starter_has_ended();
  void on_starter_end();
  void on_death(const wire::DeathRecord& record);
  void check_start();
  void tell_progress(const std::vector<int>& absent);
  void check_deadlines();

  void stop(const std::string& reason, int signal = SIGTERM);
  void drain();
  [[noreturn]] void fail_start(bool timed_out);
  void abandon() noexcept;
  void look_for_lost_host();
  int conclude();
  void say(const std::string& line) { printer_.say(line); }
  void detail(const std::string& line);
  void tell_mpi_problem();
  std::string top(bool as_json) const;
  void send_reports();
  void open_otlp();
  void write_metrics(bool at_end);
  void say_metrics_trouble(const std::string& trouble);
  std::string what_runs() const;
  void keep_operations();
  std::string same_job() const;
  std::optional<HangLimits> patience() const;
  void give_up(const std::string& why);
  std::unique_ptr<ElasticPart> elastic_part(const std::string& job_id, std::map<std::string, std::string> environment,
                                            const std::vector<std::string>& tcp);

  Job& job_;
  const bool verbose_;
  const double grace_seconds_;
  SignalQueue signals_;  // before anything that has threads
  Printer printer_;
  JobFolder folder_;
  ScriptServers servers_;
  Fd payload_;  ///< sealed memory with the pickle, for the ranks of this machine
  std::unique_ptr<JobTimeline> timeline_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<RankStarter> starter_;
  std::unique_ptr<Input> input_;                ///< --stdin
  std::unique_ptr<Results> results_;            ///< --results
  std::unique_ptr<JobServer> live_;             ///< from the moment there is a session
  std::unique_ptr<HangWatch> watch_;            ///< likewise
  std::unique_ptr<KeptOperations> operations_;  ///< likewise
  std::unique_ptr<ElasticPart> elastic_;        ///< of an elastic job, likewise

  LiveReport report_;
  ReportReaders report_readers_;
  std::unique_ptr<MetricsFile> metrics_;  ///< --metrics
  std::unique_ptr<OtlpSender> otlp_;      ///< where an endpoint is set
  std::uint64_t worlds_ = 1;              ///< how often the ranks have met
  JobEnd end_;
  std::vector<std::string> mpi_problem_;  ///< lines: why some host serves no MPI
  std::string warned_host_;               ///< which has another version
  Clock::time_point started_at_, next_progress_;
  double started_wall_seconds_ = 0;
  std::string job_id_;
  EndReason ended_;
  JobCleanup cleanup_;
};

}  // namespace hvd::launcher

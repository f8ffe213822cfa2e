/// @file reports.h — reports on the steps of a running job, for hvdrun top, hvd.report(), --metrics and a collector.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "launcher/control/session.h"
#include "launcher/job/job.h"
#include "launcher/output/printer.h"
#include "launcher/report/live_report.h"
#include "launcher/report/metrics/metrics_file.h"
#include "launcher/report/report_readers.h"
#include "launcher/supervise/watch/otlp_sender.h"

namespace hvd::launcher {

/// Thread: the event loop's.
class Reports {
 public:
  /// @param folder  the job's
  /// @param started_wall_seconds  CLOCK_REALTIME of hvdrun's start
  Reports(const Job& job, const std::string& job_id, const std::string& folder, double started_wall_seconds,
          Session& session, Printer& printer);

  // Events:
  void rank_came(int rank, const std::string& host) { live_.place(rank, host); }
  void rank_started(int rank, int cores) { live_.give_cores(rank, cores); }
  void rank_ended(int rank) { live_.ended(rank); }
  void take_steps(int rank, const std::vector<wire::StepRecord>& steps);
  /// Notes that the rank's program calls hvd.report().
  void add_reader(int rank) { readers_.add(rank); }
  void world_is(std::size_t ranks, std::uint64_t epoch);

  /// One turn of the loop.
  void turn();
  /// True if turn() has nothing to do before the next event.
  bool is_quiet() const { return live_.is_quiet() && !file_ && !otlp_; }
  /// Counts the last steps and writes the last numbers.  Waits at most five seconds.
  void finish();

  /// For hvdrun top.
  std::string top(bool as_json) const;
  const LiveReport& steps() const { return live_; }

 private:
  void open_otlp(const Job& job, const std::string& folder);
  void send_to_readers();
  void write_metrics(bool at_end);
  void say_trouble(const std::string& trouble);

  const std::string job_id_;
  const double started_wall_seconds_;
  Session& session_;
  Printer& printer_;
  LiveReport live_;
  ReportReaders readers_;
  std::unique_ptr<MetricsFile> file_;  ///< --metrics
  std::unique_ptr<OtlpSender> otlp_;   ///< null: no endpoint is set
  std::uint64_t worlds_ = 1;           ///< how often the ranks have met
};

}  // namespace hvd::launcher

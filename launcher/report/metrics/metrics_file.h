/// @file metrics_file.h — a running job's metrics in Prometheus' text format, for its node exporter's textfile
/// collector.
#pragma once
#include <string>
#include <vector>

#include "launcher/report/metrics/job_metrics.h"

namespace hvd::launcher {

/// Pure.  @param job  the job's name, as hvdrun ps shows it
std::string metrics_text(const std::vector<Metric>& metrics, const std::string& job);

/// Replaces the file every ten seconds.  A reader sees the whole old file or the whole new one.
class MetricsFile {
 public:
  explicit MetricsFile(std::string path) : path_(std::move(path)) {}
  bool is_due(double now_seconds) const { return now_seconds >= next_seconds_; }
  /// Writes the file.  Returns the reason of a failure, once; empty: the file was written, or the failure is already
  /// known.
  std::string write(const std::string& text, double now_seconds);

 private:
  static constexpr double every_seconds = 10;

  std::string path_;
  double next_seconds_ = 0;
  bool complained_ = false;
};

}  // namespace hvd::launcher

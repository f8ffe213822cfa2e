/// @file metrics_file.h — a running job's numbers in Prometheus' text format, for the textfile collector of its node
/// exporter.
#pragma once
#include <string>
#include <vector>

#include "launcher/report/metrics/job_metrics.h"

namespace hvd::launcher {

/// Pure.  @p job  its name, as hvdrun ps shows it
std::string metrics_text(const std::vector<Metric>& metrics, const std::string& job);

/// Writes the file anew, every some seconds; a reader sees the old one or the new one, whole.
class MetricsFile {
 public:
  explicit MetricsFile(std::string path) : path_(std::move(path)) {}
  bool is_due(double now_seconds) const { return now_seconds >= next_seconds_; }
  /// What went wrong, once; empty: it is written.
  std::string write(const std::string& text, double now_seconds);

 private:
  static constexpr double every_seconds = 10;

  std::string path_;
  double next_seconds_ = 0;
  bool complained_ = false;
};

}  // namespace hvd::launcher

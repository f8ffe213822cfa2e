/// @file job_metrics.h — a running job's metrics, for Prometheus (a file) and for OpenTelemetry (OTLP).
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "launcher/report/live_report.h"

namespace hvd::launcher {

using Labels = std::vector<std::pair<std::string, std::string>>;

enum class MetricKind { gauge, counter };

struct MetricPoint {
  Labels labels;
  double value = 0;
};

struct Metric {
  const char* name;
  MetricKind kind;
  const char* help;
  std::vector<MetricPoint> points;
};

/// Pure.
/// @param worlds  number of worlds since the start; above 1 only in an elastic job
std::vector<Metric> job_metrics(const LiveReport& report, std::size_t ranks, std::uint64_t worlds, double now_seconds);

}  // namespace hvd::launcher

/// @file otlp.h — a running job's metrics for a collector that speaks OpenTelemetry's protocol over HTTP.
///
/// OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_ENDPOINT …) name the collector.  curl sends the metrics, with its
/// proxies, certificates and host names (supervise/watch/otlp_sender.h).
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/report/metrics/job_metrics.h"

namespace hvd::launcher {

struct OtlpTarget {
  std::string url;
  Labels headers, attributes;  ///< attributes: of the resource
};

/// Reads OpenTelemetry's variables.  Nothing: no endpoint is set, or metrics are switched off.  Throws Error{usage}
/// when the variables ask for something that hvdrun cannot do.  @param variable  returns a variable's value, or nullptr
std::optional<OtlpTarget> otlp_target(const std::function<const char*(const char*)>& variable);

/// The request's body, as JSON.  Times in nanoseconds since 1970.
std::string otlp_text(const std::vector<Metric>& metrics, const OtlpTarget& target, const std::string& job,
                      std::int64_t begun_ns, std::int64_t now_ns);

/// A configuration for curl: the address and the headers.
std::string curl_configuration(const OtlpTarget& target);

}  // namespace hvd::launcher

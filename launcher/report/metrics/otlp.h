/// @file otlp.h — a running job's numbers for a collector that speaks OpenTelemetry's protocol over HTTP.
///
/// Where to is said by OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_ENDPOINT …). curl carries it, with its
/// proxies, certificates and host names; what it is to send comes to it by its standard input, so that no key in a
/// header shows in a process list.
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

/// Nothing: no endpoint is set, or metrics are switched off.  Throws Error{usage} where it asks for what we cannot do.
/// @p variable  gives the value of one, or nullptr
std::optional<OtlpTarget> otlp_target(const std::function<const char*(const char*)>& variable);

/// The request's body, as JSON.  Times in nanoseconds since 1970.
std::string otlp_text(const std::vector<Metric>& metrics, const OtlpTarget& target, const std::string& job,
                      std::int64_t begun_ns, std::int64_t now_ns);

/// A configuration for curl: where to, and with which headers.
std::string curl_configuration(const OtlpTarget& target);

}  // namespace hvd::launcher

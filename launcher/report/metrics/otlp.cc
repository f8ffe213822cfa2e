#include "launcher/report/metrics/otlp.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

using Json = nlohmann::ordered_json;

/// The value of the variable for metrics, else of the variable for all signals; empty: neither is set.
std::string variable_of(const std::function<const char*(const char*)>& environment, const std::string& name) {
  for (const std::string& variable : {"OTEL_EXPORTER_OTLP_METRICS_" + name, "OTEL_EXPORTER_OTLP_" + name})
    if (const char* value = environment(variable.c_str()); value && *value) return value;
  return "";
}

/// Decodes %20 and the like.
std::string decoded(std::string_view text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0;
    out += escaped ? static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2])) : text[i];
    if (escaped) i += 2;
  }
  return out;
}

/// key=value,key=value.
Labels pairs_in(const std::string& text, const std::string& variable) {
  Labels pairs;
  for (const std::string& part : split(text, ',')) {
    if (trim(part).empty()) continue;
    const auto equals = part.find('=');
    const std::string key(trim(part.substr(0, equals)));
    const std::string value =
        equals == std::string::npos ? "" : decoded(trim(std::string_view(part).substr(equals + 1)));
    if (equals == std::string::npos || key.empty() || (key + value).find_first_of("\r\n") != std::string::npos)
      throw Error(Code::usage, variable, "has a part that is not key=value", "write it as key=value,key=value");
    pairs.emplace_back(key, value);
  }
  return pairs;
}

Json otlp_attributes(const Labels& labels) {
  Json all = Json::array();
  for (const auto& [key, value] : labels) all.push_back({{"key", key}, {"value", {{"stringValue", value}}}});
  return all;
}

/// A value in curl's configuration.
std::string curl_quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

}  // namespace

std::optional<OtlpTarget> otlp_target(const std::function<const char*(const char*)>& environment) {
  const auto is = [&](const char* variable, std::string_view wanted) {
    const char* value = environment(variable);
    return value && wanted == value;
  };
  OtlpTarget target;
  target.url = variable_of(environment, "ENDPOINT");
  if (target.url.empty() || is("OTEL_METRICS_EXPORTER", "none") || is("OTEL_SDK_DISABLED", "true")) return std::nullopt;
  const char* own = environment("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT");
  if (!own || !*own) target.url += target.url.ends_with('/') ? "v1/metrics" : "/v1/metrics";
  const std::string protocol = variable_of(environment, "PROTOCOL");
  // The job's programs may speak gRPC to the same collector, so the variable is no error.
  if (protocol == "grpc") return std::nullopt;
  if (!target.url.starts_with("http://") && !target.url.starts_with("https://"))
    throw Error(Code::usage, "OTEL_EXPORTER_OTLP_ENDPOINT", "'" + target.url + "' is no http:// or https:// address",
                "as in http://collector:4318, or OTEL_METRICS_EXPORTER=none for no metrics");
  if (target.url.find_first_of("\r\n") != std::string::npos)
    throw Error(Code::usage, "OTEL_EXPORTER_OTLP_ENDPOINT", "has a line break in it", "as in http://collector:4318");
  target.headers = pairs_in(variable_of(environment, "HEADERS"), "OTEL_EXPORTER_OTLP_HEADERS");
  const char* const name = environment("OTEL_SERVICE_NAME");
  target.attributes = {{"service.name", name && *name ? name : "hvdrun"}};
  const char* const more = environment("OTEL_RESOURCE_ATTRIBUTES");
  for (auto& pair : pairs_in(more ? more : "", "OTEL_RESOURCE_ATTRIBUTES"))
    if (pair.first != "service.name") target.attributes.push_back(std::move(pair));
  return target;
}

std::string otlp_text(const std::vector<Metric>& metrics, const OtlpTarget& target, const std::string& job,
                      std::int64_t begun_ns, std::int64_t now_ns) {
  Json all = Json::array();
  for (const Metric& m : metrics) {
    if (m.points.empty()) continue;
    Json points = Json::array();
    for (const MetricPoint& p : m.points) {
      Json point{
          {"attributes", otlp_attributes(p.labels)}, {"timeUnixNano", std::to_string(now_ns)}, {"asDouble", p.value}};
      if (m.kind == MetricKind::counter) point["startTimeUnixNano"] = std::to_string(begun_ns);
      points.push_back(std::move(point));
    }
    Json metric{{"name", m.name}, {"description", m.help}};
    if (m.kind == MetricKind::counter)
      metric["sum"] = {{"aggregationTemporality", 2}, {"isMonotonic", true}, {"dataPoints", std::move(points)}};
    else
      metric["gauge"] = {{"dataPoints", std::move(points)}};
    all.push_back(std::move(metric));
  }
  Labels resource = target.attributes;
  resource.emplace_back("hvdrun.job", job);
  const Json scope{{"name", "hvdrun"}, {"version", HVD_VERSION}};
  Json scopes = Json::array(), resources = Json::array();
  scopes.push_back({{"scope", scope}, {"metrics", std::move(all)}});
  resources.push_back({{"resource", {{"attributes", otlp_attributes(resource)}}}, {"scopeMetrics", std::move(scopes)}});
  return Json{{"resourceMetrics", std::move(resources)}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string curl_configuration(const OtlpTarget& target) {
  std::string text = "url = " + curl_quoted(target.url) + "\nheader = \"Content-Type: application/json\"\n";
  for (const auto& [name, value] : target.headers) text += "header = " + curl_quoted(name + ": " + value) + "\n";
  return text;
}

}  // namespace hvd::launcher

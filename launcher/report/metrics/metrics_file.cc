#include "launcher/report/metrics/metrics_file.h"

#include "base/error.h"
#include "base/files/own_file.h"
#include "base/format.h"

namespace hvd::launcher {

namespace {

/// Escapes a label's text as the format asks.
std::string label(const std::string& text) {
  std::string out;
  for (const char c : text)
    if (c == '\\' || c == '"')
      out += std::string("\\") + c;
    else
      out += c == '\n' ? std::string("\\n") : std::string(1, c);
  return "\"" + out + "\"";
}

}  // namespace

std::string metrics_text(const std::vector<Metric>& metrics, const std::string& job) {
  std::string text;
  for (const Metric& m : metrics) {
    const char* const kind = m.kind == MetricKind::gauge ? "gauge" : "counter";
    text += formatted("# HELP {} {}\n# TYPE {} {}\n", m.name, m.help, m.name, kind);
    for (const MetricPoint& point : m.points) {
      text += m.name + ("{job=" + label(job));
      for (const auto& [name, value] : point.labels) text += "," + name + "=" + label(value);
      text += "} " + formatted("{:.9g}", point.value) + "\n";
    }
  }
  return text;
}

std::string MetricsFile::write(const std::string& text, double now_seconds) {
  next_seconds_ = now_seconds + every_seconds;
  try {
    replace_own_file(path_, text, 0644);
  } catch (const Error& e) {
    if (complained_) return "";
    complained_ = true;
    return std::string("the metrics are not written: ") + e.what();
  }
  complained_ = false;
  return "";
}

}  // namespace hvd::launcher

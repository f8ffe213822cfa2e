#include "launcher/supervise/report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "launcher/supervise/verdict.h"

namespace hvd::launcher {

namespace {

std::string time_text(double seconds) {
  char text[48];
  const auto whole = static_cast<long>(seconds);
  if (seconds < 60)
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  else
    std::snprintf(text, sizeof text, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
  return text;
}

std::string memory_text(std::int64_t bytes) {
  char text[32];
  const double mib = static_cast<double>(bytes) / (1 << 20);
  std::snprintf(text, sizeof text, mib < 1024 ? "%.0f MiB" : "%.1f GiB", mib < 1024 ? mib : mib / 1024);
  return text;
}

}  // namespace

std::vector<std::string> report_lines(const std::vector<wire::DeathRecord>& deaths, double wall_seconds) {
  std::vector<std::string> lines{"hvdrun: " + count_of(static_cast<long long>(deaths.size()), "rank") + ", " +
                                 time_text(wall_seconds)};
  if (deaths.empty()) return lines;
  double cpu = 0;
  for (const wire::DeathRecord& d : deaths) cpu += d.cpu_seconds;
  char text[64];
  std::snprintf(text, sizeof text, "; %.1f cores in use on average", wall_seconds > 0 ? cpu / wall_seconds : 0);
  lines[0] += text;
  const auto [least, most] = std::minmax_element(
      deaths.begin(), deaths.end(), [](const auto& a, const auto& b) { return a.peak_bytes < b.peak_bytes; });
  std::string memory = "        memory peak " + memory_text(most->peak_bytes) + " (rank " + std::to_string(most->rank) +
                       " on " + most->host + ")";
  if (deaths.size() > 1)
    memory += ", least " + memory_text(least->peak_bytes) + " (rank " + std::to_string(least->rank) + ")";
  lines.push_back(std::move(memory));
  const auto [first, last] = std::minmax_element(deaths.begin(), deaths.end(),
                                                 [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; });
  const double apart = static_cast<double>(last->time_ns - first->time_ns) / 1e9;
  if (apart > 1)
    lines.push_back("        rank " + std::to_string(last->rank) + " on " + last->host + " was the last to end, " +
                    time_text(apart) + " after rank " + std::to_string(first->rank));
  return lines;
}

std::string report_json(const std::vector<wire::DeathRecord>& deaths, double wall_seconds, int exit_code,
                        int first_cause) {
  using Json = nlohmann::ordered_json;
  double cpu = 0;
  Json ranks = Json::array();
  const wire::DeathRecord *first = nullptr, *last = nullptr;
  for (const wire::DeathRecord& d : deaths) {
    cpu += d.cpu_seconds;
    if (!first || d.time_ns < first->time_ns) first = &d;
    if (!last || d.time_ns > last->time_ns) last = &d;
  }
  for (const wire::DeathRecord& d : deaths)
    ranks.push_back({{"rank", d.rank},
                     {"host", d.host},
                     {"ended", story(d)},
                     {"exit_code", wire::exit_code(d)},
                     {"after_the_first_seconds", static_cast<double>(d.time_ns - first->time_ns) / 1e9},
                     {"cpu_seconds", d.cpu_seconds},
                     {"peak_bytes", d.peak_bytes}});
  Json report{{"exit_code", exit_code},
              {"wall_seconds", wall_seconds},
              {"cores_in_use", wall_seconds > 0 ? cpu / wall_seconds : 0},
              {"first_cause", first_cause < 0 ? Json() : Json(first_cause)},
              {"last_to_end", last ? Json(last->rank) : Json()},
              {"ranks", std::move(ranks)}};
  return report.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace hvd::launcher

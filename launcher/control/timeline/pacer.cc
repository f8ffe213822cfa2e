#include "launcher/control/timeline/pacer.h"

#include <charconv>

namespace hvd::launcher {

std::optional<CpuTimes> parse_cpu_times(std::string_view stat) {
  // cpu  user nice system idle iowait irq softirq steal guest guest_nice; the guests are in user and nice already
  if (!stat.starts_with("cpu ")) return std::nullopt;
  CpuTimes times;
  const char* at = stat.data() + 4;
  const char* const end = stat.data() + stat.size();
  for (int field = 0; field < 8; ++field) {
    while (at != end && *at == ' ') ++at;
    std::uint64_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc{}) return std::nullopt;
    at = next;
    times.total += value;
    if (field == 3 || field == 4) times.idle += value;
  }
  for (std::size_t line = stat.find("\ncpu"); line != std::string_view::npos; line = stat.find("\ncpu", line + 1))
    ++times.processors;
  return times;
}

double allowed_share(const CpuTimes& before, const CpuTimes& now) {
  constexpr double busy_share = 0.01;
  if (now.total <= before.total || now.processors == 0) return 1;
  const double idle = static_cast<double>(now.idle - before.idle) / static_cast<double>(now.total - before.total);
  const double idle_cores = idle * now.processors;
  return idle_cores >= 0.5 ? 1 : idle_cores >= 0.2 ? 0.1 : busy_share;
}

}  // namespace hvd::launcher

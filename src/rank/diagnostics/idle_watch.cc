#include "rank/diagnostics/idle_watch.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/format.h"
#include "base/process/process.h"
#include "base/text.h"

namespace hvd::rank {
namespace {

constexpr double most_of_a_core = 0.05;
constexpr double most_bytes_a_second = 100e3;

std::int64_t cpu_ns_of(pid_t pid) {
  const std::string stat = whole_text(formatted("/proc/{}/stat", pid));
  const std::vector<std::string> fields = words(stat.substr(std::min(stat.rfind(')'), stat.size())));
  if (fields.size() <= 13) return 0;
  static const std::int64_t ns_per_tick = 1'000'000'000 / sysconf(_SC_CLK_TCK);
  return (std::strtoll(fields[12].c_str(), nullptr, 10) + std::strtoll(fields[13].c_str(), nullptr, 10)) * ns_per_tick;
}

std::uint64_t read_written_by(pid_t pid) {
  std::uint64_t bytes = 0;
  for (const std::string& line : split(whole_text(formatted("/proc/{}/io", pid)), '\n'))
    if (line.starts_with("rchar: ") || line.starts_with("wchar: "))
      bytes += std::strtoull(line.c_str() + 7, nullptr, 10);
  return bytes;
}

}  // namespace

RankUse use_below(pid_t rank) {
  RankUse use;
  std::vector<pid_t> processes = descendants(rank);
  processes.push_back(rank);
  for (const pid_t pid : processes) {
    use.cpu_ns += cpu_ns_of(pid);
    use.read_written += read_written_by(pid);
  }
  return use;
}

void IdleWatch::take(const RankUse& use, Clock::time_point now) {
  const double seconds = std::chrono::duration<double>(now - last_).count();
  // A process that ends takes its times with it, so a smaller sum is a change too.
  const bool is_idle = last_ != Clock::time_point{} && !use.gpu_computes && use.printed == before_.printed &&
                       use.cpu_ns >= before_.cpu_ns && use.read_written >= before_.read_written &&
                       static_cast<double>(use.cpu_ns - before_.cpu_ns) < most_of_a_core * 1e9 * seconds &&
                       static_cast<double>(use.read_written - before_.read_written) < most_bytes_a_second * seconds;
  if (!is_idle) idle_since_ = now;
  before_ = use;
  last_ = now;
  due_ = now + period;
}

}  // namespace hvd::rank

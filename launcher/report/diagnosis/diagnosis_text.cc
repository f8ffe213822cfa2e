#include "base/format.h"
#include "base/text.h"
#include "launcher/report/diagnosis/diagnosis.h"

namespace hvd::launcher {

namespace {

std::string share_text(double share) { return formatted("{:.0f} %", 100 * share); }

/// "rank 5 (node2): ", "ranks 4-7 (all of node2): ".
std::string whose(const Finding& f) {
  if (f.ranks.empty()) return "";
  const std::string where = f.host.empty() ? "" : formatted(" ({}{})", f.whole_host ? "all of " : "", f.host);
  return ranks_text(f.ranks) + where + ": ";
}

}  // namespace

const char* cause_word(SlowCause cause) {
  switch (cause) {
    case SlowCause::input:
      return "INPUT";
    case SlowCause::compute:
      return "COMPUTE";
    case SlowCause::communication:
      return "COMMUNICATION";
    case SlowCause::straggler:
      return "STRAGGLER";
    case SlowCause::checkpoint:
      return "CHECKPOINT";
    case SlowCause::collector:
      return "GC";
    case SlowCause::compilation:
      return "COMPILATION";
    case SlowCause::memory_creep:
      return "MEMORY_CREEP";
    case SlowCause::balanced:
      return "BALANCED";
  }
  return "";
}

std::string duration_text(double seconds) {
  if (seconds >= 3600) {
    const auto minutes = static_cast<long>(seconds / 60 + 0.5);
    return formatted("{} h {} min", minutes / 60, minutes % 60);
  }
  if (seconds >= 60) {
    const auto whole = static_cast<long>(seconds + 0.5);
    return formatted("{} min {} s", whole / 60, whole % 60);
  }
  if (seconds >= 1) return formatted("{:.3g} s", seconds);
  if (seconds >= 1e-3) return formatted("{:.3g} ms", seconds * 1e3);
  return formatted("{:.3g} µs", seconds * 1e6);
}

std::vector<std::string> diagnosis_lines(const Diagnosis& d) {
  if (d.steps == 0 || d.step_seconds <= 0) return {};
  std::vector<std::string> lines{formatted(
      "hvdrun: {}, {} each; {} of it ({}) was waiting", count_of(d.steps, "step"), duration_text(d.step_seconds),
      share_text(d.waiting_seconds / d.step_seconds), duration_text(d.waiting_seconds))};
  for (const Finding& f : d.findings) {
    lines.push_back(formatted("  {}  {}{}", cause_word(f.cause), whose(f), f.what));
    std::string second;
    if (f.seconds_a_step > 0 && f.cause != SlowCause::balanced && f.cause != SlowCause::memory_creep)
      second = formatted("  Without it: {} a step (−{}). ", duration_text(d.step_seconds - f.seconds_a_step),
                         share_text(f.seconds_a_step / d.step_seconds));
    if (!f.advice.empty())
      second += (second.empty() ? "  Try: " : "Try: ") + f.advice + (f.advice.back() == '?' ? "" : ".");
    if (!second.empty()) lines.push_back(second);
  }
  return lines;
}

}  // namespace hvd::launcher

#include "launcher/report/metrics_file.h"

#include "base/error.h"
#include "base/format.h"
#include "base/own_file.h"

namespace hvd::launcher {

namespace {

constexpr std::size_t most_ranks = 1024;  // each is seven series

/// What the format asks to be written otherwise in a label.
std::string label(const std::string& text) {
  std::string out;
  for (const char c : text)
    if (c == '\\' || c == '"')
      out += std::string("\\") + c;
    else
      out += c == '\n' ? std::string("\\n") : std::string(1, c);
  return "\"" + out + "\"";
}

class Exposition {
 public:
  explicit Exposition(const std::string& job) : job_("job=" + label(job)) {}
  void family(const char* name, const char* type, const char* help) {
    name_ = name;
    text_ += formatted("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  void value(double value, const std::string& labels = "") {
    text_ += name_ + "{" + job_ + (labels.empty() ? "" : ",") + labels + "} " + formatted("{:.9g}", value) + "\n";
  }
  std::string text() && { return std::move(text_); }

 private:
  const std::string job_;
  std::string name_, text_;
};

}  // namespace

std::string metrics_text(const LiveReport& report, const std::string& job, std::size_t ranks, std::uint64_t worlds,
                         double now_seconds) {
  const StepStatistics recent = report.recent(now_seconds);
  const Diagnosis d = report.recent_diagnosis(now_seconds);
  Exposition e(job);
  const auto single = [&](const char* name, const char* type, const char* help, double value) {
    e.family(name, type, help);
    e.value(value);
  };
  single("hvdrun_ranks", "gauge", "Ranks of the job.", static_cast<double>(ranks));
  single("hvdrun_worlds_total", "counter", "How often the ranks have met; more than once in an elastic job.",
         static_cast<double>(worlds));
  single("hvdrun_steps_total", "counter", "Steps, without the first ones.",
         static_cast<double>(report.whole().steps()));
  single("hvdrun_operations_total", "counter", "Operations of a rank.",
         static_cast<double>(report.whole().operations()));
  single("hvdrun_operation_bytes_total", "counter", "Bytes of a rank's tensors in operations.",
         static_cast<double>(report.whole().operation_bytes()));
  if (d.steps == 0) return std::move(e).text();  // the rest is of the last half minute
  single("hvdrun_step_seconds", "gauge", "Mean of a step, of the last half minute as all that follows.",
         d.step_seconds);
  single("hvdrun_step_waiting_seconds", "gauge", "Of a step: for other ranks, or for data under way.",
         d.waiting_seconds);
  single("hvdrun_step_communication_seconds", "gauge", "Of a step: data under way.", d.communication_seconds);
  e.family("hvdrun_cause_seconds", "gauge", "What a cause of slowness costs in a step.");
  for (const Finding& f : d.findings) {
    const std::string who = f.ranks.size() == 1 ? std::to_string(f.ranks[0]) : f.ranks.empty() ? "" : "several";
    e.value(f.cause == SlowCause::balanced ? 0 : f.seconds_a_step,
            formatted("cause={},rank={},host={}", label(cause_word(f.cause)), label(who), label(f.host)));
  }
  e.family("hvdrun_rank_step_part_seconds", "gauge", "Parts of a rank's step.");
  const auto of_ranks = [&](const auto& tell) {
    std::size_t told = 0;
    for (const auto& [rank, sums] : recent.ranks()) {
      if (++told > most_ranks) return;
      const auto place = report.places().find(rank);
      tell(formatted("rank=\"{}\",host={}", rank, label(place == report.places().end() ? "" : place->second.host)),
           sums);
    }
  };
  constexpr std::array<const char*, delay_kinds> names{"input",   "saving", "collecting",
                                                       "no_core", "asleep", "computing"};
  of_ranks([&](const std::string& who, const RankSums& s) {
    const auto n = static_cast<double>(s.steps);
    for (std::size_t i = 0; i < delay_kinds; ++i) e.value(s.parts[i] / n, who + ",part=" + label(names[i]));
    e.value(s.waited / n, who + ",part=\"waited\"");
    e.value(s.moved / n, who + ",part=\"moved\"");
  });
  e.family("hvdrun_rank_cores", "gauge", "Cores that a rank has used.");
  of_ranks([&](const std::string& who, const RankSums& s) { e.value(s.seconds > 0 ? s.cpu / s.seconds : 0, who); });
  e.family("hvdrun_rank_late_share", "gauge", "Share of the steps in which the rank came last, and late.");
  of_ranks([&](const std::string& who, const RankSums& s) {
    e.value(static_cast<double>(s.late_steps) / static_cast<double>(s.steps), who);
  });
  return std::move(e).text();
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

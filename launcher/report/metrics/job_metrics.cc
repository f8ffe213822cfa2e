#include "launcher/report/metrics/job_metrics.h"

#include <array>
#include <functional>

namespace hvd::launcher {

namespace {

constexpr std::size_t most_ranks = 1024;  // each rank has some ten points

Labels with_part(Labels labels, const char* part) {
  labels.emplace_back("part", part);
  return labels;
}

}  // namespace

std::vector<Metric> job_metrics(const LiveReport& report, std::size_t ranks, std::uint64_t worlds, double now_seconds) {
  const StepStatistics recent = report.recent(now_seconds);
  const Diagnosis d = report.recent_diagnosis(now_seconds);
  std::vector<Metric> all;
  const auto family = [&](const char* name, MetricKind kind, const char* help) {
    all.push_back({name, kind, help, {}});
  };
  const auto value = [&](double number, Labels labels = {}) {
    all.back().points.push_back({std::move(labels), number});
  };
  const auto single = [&](const char* name, MetricKind kind, const char* help, double number) {
    family(name, kind, help);
    value(number);
  };
  single("hvdrun_ranks", MetricKind::gauge, "Ranks of the job.", static_cast<double>(ranks));
  single("hvdrun_worlds_total", MetricKind::counter, "How often the ranks have met; more than once in an elastic job.",
         static_cast<double>(worlds));
  single("hvdrun_steps_total", MetricKind::counter, "Steps, without the first ones.",
         static_cast<double>(report.whole().steps()));
  single("hvdrun_operations_total", MetricKind::counter, "Operations of a rank.",
         static_cast<double>(report.whole().operations()));
  single("hvdrun_operation_bytes_total", MetricKind::counter, "Bytes of a rank's tensors in operations.",
         static_cast<double>(report.whole().operation_bytes()));
  if (d.steps == 0) return all;  // the other metrics describe the last half minute
  single("hvdrun_step_seconds", MetricKind::gauge, "Mean of a step, of the last half minute as all that follows.",
         d.step_seconds);
  single("hvdrun_step_waiting_seconds", MetricKind::gauge, "Of a step: for other ranks, or for data under way.",
         d.waiting_seconds);
  single("hvdrun_step_communication_seconds", MetricKind::gauge, "Of a step: data under way.", d.communication_seconds);
  family("hvdrun_cause_seconds", MetricKind::gauge, "Seconds of a step that a cause of slowness takes.");
  for (const Finding& f : d.findings) {
    const std::string who = f.ranks.size() == 1 ? std::to_string(f.ranks[0]) : f.ranks.empty() ? "" : "several";
    value(f.cause == SlowCause::balanced ? 0 : f.seconds_a_step,
          {{"cause", cause_word(f.cause)}, {"rank", who}, {"host", f.host}});
  }
  family("hvdrun_rank_step_part_seconds", MetricKind::gauge, "Parts of a rank's step.");
  const auto of_ranks = [&](const std::function<void(const Labels&, const RankSums&)>& tell) {
    std::size_t told = 0;
    for (const auto& [rank, sums] : recent.ranks()) {
      if (++told > most_ranks) return;
      const auto place = report.places().find(rank);
      tell({{"rank", std::to_string(rank)}, {"host", place == report.places().end() ? "" : place->second.host}}, sums);
    }
  };
  constexpr std::array<const char*, delay_kinds> names{"input",   "saving", "collecting", "compiling",
                                                       "no_core", "asleep", "computing"};
  of_ranks([&](const Labels& who, const RankSums& s) {
    const auto n = static_cast<double>(s.steps);
    for (std::size_t i = 0; i < delay_kinds; ++i) value(s.parts[i] / n, with_part(who, names[i]));
    value(s.waited / n, with_part(who, "waited"));
    value(s.moved / n, with_part(who, "moved"));
  });
  family("hvdrun_rank_cores", MetricKind::gauge, "Cores that a rank has used.");
  of_ranks([&](const Labels& who, const RankSums& s) { value(s.seconds > 0 ? s.cpu / s.seconds : 0, who); });
  family("hvdrun_rank_late_share", MetricKind::gauge, "Share of the steps in which the rank came last, and late.");
  of_ranks([&](const Labels& who, const RankSums& s) {
    value(static_cast<double>(s.late_steps) / static_cast<double>(s.steps), who);
  });
  return all;
}

}  // namespace hvd::launcher

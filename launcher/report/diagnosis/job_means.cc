#include "launcher/report/diagnosis/job_means.h"

#include <algorithm>
#include <cstdint>

#include "base/format.h"
#include "base/text.h"
#include "launcher/report/diagnosis/cause_text.h"
#include "launcher/report/diagnosis/late_reason.h"

namespace hvd::launcher {

JobMeans::JobMeans(const StepStatistics& job_statistics, const std::map<int, RankPlace>& rank_places)
    : statistics(job_statistics),
      places(rank_places),
      ranks(means_of(job_statistics)),
      steps(static_cast<double>(job_statistics.steps())),
      step_seconds(steps > 0 ? job_statistics.seconds() / steps : 0) {}

double JobMeans::common(Delay delay) const {
  return median_of(ranks, [delay](const RankMeans& m) { return part_of(m.parts, delay); });
}

double JobMeans::operations() const { return static_cast<double>(statistics.operations()) / steps; }

RankPlace JobMeans::place(int rank) const {
  const auto it = places.find(rank);
  return it == places.end() ? RankPlace{} : it->second;
}

bool JobMeans::on_one_host() const {
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](const RankMeans& m) { return place(m.rank).host == place(ranks.front().rank).host; });
}

std::string JobMeans::cores_used(const RankMeans& m) const {
  const RankPlace p = place(m.rank);
  if (p.cores <= 0 || step_seconds <= 0) return "";
  return formatted(" ({:.1f} of its {} used)", m.cpu / step_seconds, count_of(p.cores, "core"));
}

void JobMeans::say_where(Finding& f) const {
  const std::string host = place(f.ranks[0]).host;
  if (!std::all_of(f.ranks.begin(), f.ranks.end(), [&](int r) { return place(r).host == host; })) return;
  f.host = host;
  const auto there = static_cast<std::size_t>(
      std::count_if(ranks.begin(), ranks.end(), [&](const RankMeans& m) { return place(m.rank).host == host; }));
  f.whole_host = there == f.ranks.size() && there > 1 && there < ranks.size();
}

std::optional<Finding> memory_finding(const JobMeans& job) {
  constexpr std::int64_t least_growth = 16 << 20;
  Finding f;
  f.cause = SlowCause::memory_creep;
  double fastest = 0;
  std::int64_t grown = 0;
  for (const auto& [rank, course] : job.statistics.memory()) {
    const auto growth = course.growth();
    if (!growth || growth->bytes < least_growth) continue;
    f.ranks.push_back(rank);
    fastest = std::max(fastest, growth->bytes_per_step);
    grown = std::max(grown, growth->bytes);
  }
  if (f.ranks.empty()) return {};
  if (f.ranks.size() == job.ranks.size() && job.ranks.size() > 1)
    f.ranks.clear();
  else
    job.say_where(f);
  f.what =
      formatted("memory grows by {} a step, {} in the second half of the job", size_text(fastest), human_bytes(grown));
  f.advice = "keep numbers instead of tensors (loss.item()), and look for lists that only grow";
  return f;
}

}  // namespace hvd::launcher

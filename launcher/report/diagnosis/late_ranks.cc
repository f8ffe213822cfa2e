#include "launcher/report/diagnosis/late_ranks.h"

#include <cmath>

namespace hvd::launcher {

namespace {

/// The time by which the late ranks worked longer than the other ranks, in one stretch of the job.
struct StretchGap {
  double steps = 0, seconds = 0;  ///< `seconds`: per step
};

/// Returns the mean own time per step, over the ranks with steps in the stretch.  Nothing: no rank has steps there.
std::optional<double> own_in(const std::vector<RankMeans>& ranks, std::size_t stretch) {
  double sum = 0;
  int count = 0;
  for (const RankMeans& m : ranks) {
    const StretchSum& s = m.sums->stretches[stretch];
    if (s.steps > 0) sum += static_cast<double>(s.own_seconds) / s.steps, ++count;
  }
  if (!count) return {};
  return sum / count;
}

std::vector<StretchGap> gaps_of(const LateRanks& l, std::size_t stretches) {
  std::vector<StretchGap> gaps;
  for (std::size_t i = 0; i < stretches; ++i) {
    const auto late = own_in(l.late, i), others = own_in(l.others, i);
    if (late && others) gaps.push_back({static_cast<double>(l.late.front().sums->stretches[i].steps), *late - *others});
  }
  return gaps;
}

/// The mean of @p gaps, weighted by steps, less three standard errors.  Nothing: too few gaps.
std::optional<double> certain_mean(const std::vector<StretchGap>& gaps) {
  constexpr std::size_t least_stretches = 4;  // fewer do not show the spread
  constexpr double standard_errors = 3;
  if (gaps.size() < least_stretches) return {};
  double steps = 0, sum = 0, spread = 0;
  for (const StretchGap& g : gaps) steps += g.steps, sum += g.steps * g.seconds;
  if (steps <= 0) return {};
  const double mean = sum / steps;
  for (const StretchGap& g : gaps) spread += std::pow(g.steps / steps * (g.seconds - mean), 2);
  const auto n = static_cast<double>(gaps.size());
  return mean - standard_errors * std::sqrt(spread * n / (n - 1));
}

}  // namespace

std::vector<RankMeans> means_of(const StepStatistics& statistics) {
  std::vector<RankMeans> means;
  for (const auto& [rank, s] : statistics.ranks()) {
    const auto n = static_cast<double>(s.steps);
    RankMeans m{rank, s.waited / n, s.moved / n, s.cpu / n, (s.seconds - s.waited - s.moved) / n, s.made / n,
                0,    {},           &s};
    for (std::size_t i = 0; i < delay_kinds; ++i) m.parts[i] = s.parts[i] / n;
    m.throttled = std::min(s.throttled / n, m.own);
    means.push_back(m);
  }
  return means;
}

std::optional<LateRanks> late_ranks(const StepStatistics& statistics, const std::vector<RankMeans>& ranks) {
  if (ranks.size() < 2) return {};
  std::vector<RankMeans> sorted = ranks;
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.own > b.own; });
  LateRanks l;
  std::size_t count = 0;
  for (std::size_t n = 1; 2 * n <= sorted.size() || n == 1; ++n)
    if (const double g = sorted[n - 1].own - sorted[n].own; g > l.gap) count = n, l.gap = g;
  if (!count) return {};
  l.late.assign(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(count));
  l.others.assign(sorted.begin() + static_cast<std::ptrdiff_t>(count), sorted.end());
  const auto own = [](const RankMeans& m) { return m.own; };
  l.lost = mean_of(l.late, own) - mean_of(l.others, own);
  if (l.gap < l.lost / 3) return {};
  l.certainly_lost = certain_mean(gaps_of(l, statistics.stretches()));
  double late_steps = 0, late_seconds = 0;
  for (const RankMeans& m : l.late) late_steps += static_cast<double>(m.sums->late_steps), late_seconds += m.sums->late;
  l.share_of_steps = std::min(1.0, late_steps / static_cast<double>(statistics.steps()));
  l.each = late_steps > 0 ? std::max(late_seconds / late_steps, l.lost) : l.lost;
  return l;
}

}  // namespace hvd::launcher

/// @file late_ranks.h — finds ranks that keep the other ranks waiting, the cost, and its certainty.  Pure.
#pragma once
#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "launcher/report/steps/step_statistics.h"

namespace hvd::launcher {

/// Means of one rank, in seconds per step.
struct RankMeans {
  int rank = 0;
  double waited = 0, moved = 0, cpu = 0;
  double own = 0;        ///< time outside of waiting and moving data
  double made = 0;       ///< time to make its batches, in other processes
  double throttled = 0;  ///< time for which the cgroup's processor limit held the rank; at most `own`
  DelaySeconds parts{};
  const RankSums* sums = nullptr;  ///< owned by the StepStatistics
};

std::vector<RankMeans> means_of(const StepStatistics& statistics);

/// The median.  With an even number of ranks, the lower of the two middle values.  Without ranks, 0.
template <typename Value>
double median_of(const std::vector<RankMeans>& ranks, Value value) {
  std::vector<double> values;
  for (const RankMeans& m : ranks) values.push_back(value(m));
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <typename Value>
double mean_of(const std::vector<RankMeans>& ranks, Value value) {
  double sum = 0;
  for (const RankMeans& m : ranks) sum += value(m);
  return ranks.empty() ? 0 : sum / static_cast<double>(ranks.size());
}

/// Times are seconds per step.
struct LateRanks {
  std::vector<RankMeans> late, others;  ///< sorted: the rank with the most own time first
  double lost = 0;                      ///< mean own time of `late` minus mean own time of `others`
  double gap = 0;                       ///< least own time in `late` minus most own time in `others`
  /// A lower limit of `lost`, computed from the stretches of the job: `lost` minus three standard errors.  The true
  /// mean is lower in one case of a thousand.  Nothing: there are too few stretches.
  std::optional<double> certainly_lost;
  double share_of_steps = 0;  ///< share of steps in which a late rank came last, and late
  double each = 0;            ///< mean delay of that rank in these steps, at least `lost`
};

/// Finds the ranks with the most own time: one rank, or up to half of all.  A gap must divide them from the other
/// ranks.  Nothing: the gap is less than a third of `lost`, or there are fewer than two ranks.
std::optional<LateRanks> late_ranks(const StepStatistics& statistics, const std::vector<RankMeans>& ranks);

}  // namespace hvd::launcher

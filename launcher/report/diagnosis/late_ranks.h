/// @file late_ranks.h — which ranks keep the others waiting, by how much, and how certain that is.  Pure.
#pragma once
#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "launcher/report/steps/step_statistics.h"

namespace hvd::launcher {

/// A rank's means, in a step.
struct RankMeans {
  int rank = 0;
  double waited = 0, moved = 0, cpu = 0;
  double own = 0;        ///< neither waiting nor moving data
  double made = 0;       ///< time to make its batches, in other processes
  double throttled = 0;  ///< the most of `own` for which its cgroup's limit of processor time held the rank
  DelaySeconds parts{};
  const RankSums* sums = nullptr;  ///< of the statistics
};

std::vector<RankMeans> means_of(const StepStatistics& statistics);

/// Of an even number, the lower of the two in the middle.  0 of none.
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

/// Seconds are those in a step.
struct LateRanks {
  std::vector<RankMeans> late, others;  ///< the latest first
  double lost = 0;                      ///< waiting of the others minus waiting of the late ranks
  double gap = 0;                       ///< the least work of a late rank minus the most of another
  /// `lost` less three standard errors, by the differences between the stretches of the job.  The true mean is lower in
  /// one case of a thousand.  Nothing: there are too few stretches.
  std::optional<double> certainly_lost;
  double share_of_steps = 0;  ///< the share of steps in which one of them came last, and late
  double each = 0;            ///< how late it was in these steps
};

/// The ranks that work longest, if a gap divides them from the others: one rank, or up to half of all.  Nothing: the
/// gap is less than a third of `lost`, so no line can be drawn.
std::optional<LateRanks> late_ranks(const StepStatistics& statistics, const std::vector<RankMeans>& ranks);

}  // namespace hvd::launcher

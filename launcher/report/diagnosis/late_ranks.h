/// @file late_ranks.h — which ranks keep the others waiting, by how much, and how certain that is.  Pure.
#pragma once
#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "launcher/report/steps/step_statistics.h"

namespace hvd::launcher {

/// Means of a step.
struct RankMeans {
  int rank = 0;
  double waited = 0, moved = 0, cpu = 0;
  double own = 0;        ///< neither waited nor moved
  double made = 0;       ///< its batches took so long to make, beside it
  double throttled = 0;  ///< of that, at most: held by its group's limit of processor time
  DelaySeconds parts{};
  const RankSums* sums = nullptr;  ///< of the statistics
};

std::vector<RankMeans> means_of(const StepStatistics& statistics);

/// The lower of the two in the middle, where there are two; 0 of none.
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

/// Seconds are of a step.
struct LateRanks {
  std::vector<RankMeans> late, others;  ///< the latest first
  double lost = 0;                      ///< the others waited so much longer
  double gap = 0;                       ///< and so long at least
  /// `lost` less three standard errors, from how it differs between the stretches of the job: by chance the true
  /// mean is below that in one case of a thousand.  Nothing: there are too few stretches to say.
  std::optional<double> certainly_lost;
  double share_of_steps = 0;  ///< in which one of them came last, and late
  double each = 0;            ///< so late it was then
};

/// The ranks that work longest by themselves, where a gap divides them from the others: one rank, or up to half of
/// them. Nothing: the gap is less than a third of what is lost, so that there is no line to draw.
std::optional<LateRanks> late_ranks(const StepStatistics& statistics, const std::vector<RankMeans>& ranks);

}  // namespace hvd::launcher

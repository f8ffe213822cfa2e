/// @file job_means.h — the means of a job's ranks and steps, and the findings that need nothing else.  Pure.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/report/diagnosis/diagnosis.h"
#include "launcher/report/diagnosis/late_ranks.h"
#include "launcher/report/steps/step_statistics.h"

namespace hvd::launcher {

struct JobMeans {
  /// Both arguments must outlive it.
  JobMeans(const StepStatistics& job_statistics, const std::map<int, RankPlace>& rank_places);

  /// The median of the ranks' time for @p delay, in seconds per step.
  double common(Delay delay) const;
  /// Mean number per step.
  double operations() const;
  RankPlace place(int rank) const;
  bool on_one_host() const;
  /// " (3.8 of its 32 cores used)"; empty: not known.
  std::string cores_used(const RankMeans& m) const;
  /// Sets the host of f.ranks, if they share one.
  void say_where(Finding& f) const;

  const StepStatistics& statistics;
  const std::map<int, RankPlace>& places;
  const std::vector<RankMeans> ranks;
  double steps = 0;
  double step_seconds = 0;
};

/// Data under way takes much of a step.
std::optional<Finding> communication_finding(const JobMeans& job);
/// The memory of ranks grows.  The growth costs no time until the memory is used up.
std::optional<Finding> memory_finding(const JobMeans& job);

}  // namespace hvd::launcher

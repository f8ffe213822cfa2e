/// @file elastic_plan.h — what makes a job elastic, and where its first workers are.
#pragma once
#include <optional>

#include "launcher/job/job.h"

namespace hvd::launcher {

/// Throws Error{usage} for limits that contradict each other, or options that do not go with elastic jobs.
void check_elastic_options(const Settings& settings);

/// Nothing: the job has a fixed number of ranks.  Call check_elastic_options() first.  Throws Error{usage} where
/// @p np, the ranks that there are slots for, are fewer than the limit.
std::optional<ElasticPlan> elastic_plan(const Settings& settings, const Allocation& allocation, int np);

/// Which slots of which names the ranks of @p map have.  Several names of this machine are one host of the map.
std::map<int, SlotPlace> places_of(const JobMap& map, const Allocation& allocation, const std::vector<bool>& local);

}  // namespace hvd::launcher

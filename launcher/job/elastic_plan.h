/// @file elastic_plan.h — the limits of an elastic job, and the places of its first workers.
#pragma once
#include <optional>

#include "launcher/job/job.h"

namespace hvd::launcher {

/// Throws Error{usage} for limits that contradict each other, or options that do not go with elastic jobs.
void check_elastic_options(const Settings& settings);

/// The limits and the hosts of an elastic job.  Nothing: the job has a fixed number of ranks.  Call
/// check_elastic_options() first.  Throws Error{usage} when @p np, the number of ranks with slots, is below the limit.
std::optional<ElasticPlan> elastic_plan(const Settings& settings, const Allocation& allocation, int np);

/// Finds the slot of each rank of @p map.  Several names of this machine are one host of the map.
std::map<int, SlotPlace> places_of(const JobMap& map, const Allocation& allocation, const std::vector<bool>& local);

}  // namespace hvd::launcher

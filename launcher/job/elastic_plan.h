/// @file elastic_plan.h — what makes a job elastic, and where its first workers are.
#pragma once
#include <optional>

#include "launcher/job/job.h"

namespace hvd::launcher {

/// Nothing: the job has a fixed number of ranks.  @p np  ranks asked for.  Throws Error{usage} for limits that
/// contradict each other, or options that do not go with elastic jobs.
std::optional<ElasticPlan> elastic_plan(const Settings& settings, const Allocation& allocation, int np);

/// Which slots of which names the ranks of @p map have.  Several names of this machine are one host of the map.
std::map<int, SlotPlace> places_of(const JobMap& map, const Allocation& allocation, const std::vector<bool>& local);

}  // namespace hvd::launcher

/// @file collective_calls.h — differences that only the calls of the main threads show.  Pure.  The differences concern
/// messages between two ranks, new_group(), and collectives of a torch without records.
#pragma once
#include <vector>

#include "wire/collectives/told_collectives.h"

namespace hvd::wire {

/// Adds them to @p found.
void add_differences_of_calls(const JobCollectives& job, const RankNumbers& numbers,
                              std::vector<CollectiveDifference>& found);

}  // namespace hvd::wire

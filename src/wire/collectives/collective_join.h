/// @file collective_join.h — where the ranks of a job differ in torch.distributed's collectives.  Pure.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "wire/collectives/collective_record.h"

namespace hvd::wire {

/// The ranks' answers, by hvdrun's ranks.  A rank that is not in the map has not answered.
using JobCollectives = std::map<int, RankCollectives>;

enum class CollectiveFault {
  missing,    ///< some members have not enqueued it
  different,  ///< members have enqueued different ones under the same number
  cycle,      ///< the ranks wait for each other
  stuck,      ///< all members have enqueued it, and none is through
  queued,     ///< like `stuck`, but other work of the GPUs may delay it
};

/// A collective that does not end.  Ranks are hvdrun's.
struct CollectiveDifference {
  CollectiveFault fault = CollectiveFault::missing;
  std::string what;                  ///< "all_reduce 2 of the default group ([8] float32)"
  std::vector<int> missing;          ///< different: those that are in the minority
  std::vector<int> waiting;          ///< have enqueued it
  double seconds = 0;                ///< the longest wait; stuck, queued: the shortest
  double usual_seconds = 0;          ///< the longest pause between two collectives of a waiting rank
  std::vector<std::string> details;  ///< more lines for the user, about ranks with other calls
};

/// The differences that explain why ranks wait, worst first.  Leaves out a difference that follows from another one.
std::vector<CollectiveDifference> collective_differences(const JobCollectives& job);

/// Describes the differences: "rank 1 has not enqueued all_reduce 2 of the default group ([8] float32); rank 0 waits
/// for it".
std::vector<std::string> difference_lines(const std::vector<CollectiveDifference>& differences);

/// A rank's pending collectives and its last ones, at most @p most of either.  For `hvdrun stacks --ops`.
std::string collectives_text(const RankCollectives& collectives, std::size_t most);

}  // namespace hvd::wire

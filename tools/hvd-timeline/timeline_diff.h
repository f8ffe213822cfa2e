/// @file timeline_diff.h — two timelines side by side: what takes longer in the second, and whom the others waited for.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "timeline_report.h"

namespace hvd::timeline {

/// One kind of event in both.  A count of 0: it is not there.
struct EventChange {
  std::string name;
  std::uint64_t before_count = 0, after_count = 0;
  double before_us = 0, after_us = 0;  ///< mean
  /// What the change adds to the second, in all ranks; less than zero: it spares.  0 where one of them has none.
  double added_us = 0;
};

/// One rank.  Shares are of the operations that were compared; waits are of the others, for one operation.
struct ArrivalChange {
  std::int64_t rank = 0;
  double before_share = 0, after_share = 0;
  double before_us = 0, after_us = 0;
};

struct TimelineDiff {
  TimelineReport before, after;
  std::vector<EventChange> events;      ///< what has changed most comes first
  std::vector<ArrivalChange> arrivals;  ///< likewise
};

/// Throws as make_report() does.
TimelineDiff make_diff(const std::string& before, const std::string& after);
std::string to_text(const TimelineDiff& diff);
std::string to_json(const TimelineDiff& diff);

}  // namespace hvd::timeline

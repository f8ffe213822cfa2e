/// @file timeline_diff.h — compares two timelines: events that take longer in the second, and ranks for which others
/// waited.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "timeline_report.h"

namespace hvd::timeline {

/// One kind of event in both. A count of 0: the timeline has none.
struct EventChange {
  std::string name;
  std::uint64_t before_count = 0, after_count = 0;
  double before_us = 0, after_us = 0;  ///< mean
  /// The time that the change adds to the second timeline, summed over all ranks; negative: saved time. 0 if one
  /// timeline lacks the event.
  double added_us = 0;
};

/// The change of one rank between two timelines. A share is a fraction of the compared operations. A wait is the time
/// that the other ranks waited for this rank in one operation.
struct ArrivalChange {
  std::int64_t rank = 0;
  double before_share = 0, after_share = 0;
  double before_us = 0, after_us = 0;
};

struct TimelineDiff {
  TimelineReport before, after;
  std::vector<EventChange> events;      ///< the largest change comes first
  std::vector<ArrivalChange> arrivals;  ///< likewise
};

/// Throws the errors of make_report().
TimelineDiff make_diff(const std::string& before, const std::string& after);
std::string to_text(const TimelineDiff& diff);
std::string to_json(const TimelineDiff& diff);

}  // namespace hvd::timeline

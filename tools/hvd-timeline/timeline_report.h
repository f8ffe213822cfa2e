/// @file timeline_report.h — the numbers of a timeline: times by kind of event, and ranks for which others waited.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace hvd::timeline {

/// One kind of event: all its slices of all ranks.
struct EventSummary {
  std::string name;
  std::uint64_t count = 0, bytes = 0;  ///< bytes: of the tensors, if the events have dtype and shape
  double total_us = 0, mean_us = 0, p99_us = 0, max_us = 0;
};

/// The lateness of a rank in the operations for which the arrivals of all ranks are known.
struct ArrivalSummary {
  std::int64_t rank = 0;
  std::uint64_t last = 0;  ///< operations in which it arrived last
  double waited_us = 0;    ///< in total, the time that the second-last rank had waited by then
};

struct TimelineReport {
  std::string file;
  bool cut_off = false;
  std::uint64_t ranks = 0, unfinished = 0;  ///< unfinished: begun, never ended
  double span_us = 0;
  std::vector<EventSummary> kinds;  ///< operations, then negotiations, then phases; longest total first
  std::vector<ArrivalSummary> arrivals;
  std::uint64_t operations_compared = 0;
  std::map<std::string, std::uint64_t> findings;  ///< events of --agreement by name, such as "result differs"
};

TimelineReport make_report(const std::string& path);
std::string to_text(const TimelineReport& report);
std::string to_json(const TimelineReport& report);

/// The number of elements in "[2, 3]"; 0 for text that is no shape.
std::uint64_t elements_of(const std::string& shape);

}  // namespace hvd::timeline

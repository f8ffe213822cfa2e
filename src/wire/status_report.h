/// @file status_report.h — what a rank is doing, and for how long.
#pragma once
#include <string>

#include "wire/status_page.h"

namespace hvd::wire {

/// guard → hvdrun: what the rank is about.  Told when it has changed; waits once they have lasted two seconds.
struct StatusReport {
  RankPhase place = RankPhase::script;
  double place_seconds = 0;   ///< since it came there
  std::string waits_for;      ///< the first by name of the operations that it has submitted and that do not end
  double waited_seconds = 0;  ///< since none of them moves
};
std::string to_json(const StatusReport& s);
StatusReport status_report_from_json(const std::string& text);

}  // namespace hvd::wire

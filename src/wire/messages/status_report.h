/// @file status_report.h — where a rank is in its life, the operation for which it waits, and since when.
#pragma once
#include <string>

#include "wire/shared/status_page.h"

namespace hvd::wire {

/// guard → hvdrun: sent when something has changed; a wait is told once it has lasted for two seconds.
struct StatusReport {
  RankPhase place = RankPhase::script;
  double place_seconds = 0;   ///< since the rank came there
  std::string waits_for;      ///< of the submitted operations that do not end: the first by name
  double waited_seconds = 0;  ///< since one of them last moved
};
std::string to_json(const StatusReport& s);
StatusReport status_report_from_json(const std::string& text);

}  // namespace hvd::wire

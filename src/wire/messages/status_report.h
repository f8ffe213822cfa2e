/// @file status_report.h — the phase of a rank, and the operation for which it waits.
#pragma once
#include <string>

#include "wire/shared/status_page.h"

namespace hvd::wire {

/// guard → hvdrun, after each change.  A wait of less than two seconds, or an idle time of less than a minute, is no
/// change.
struct StatusReport {
  RankPhase place = RankPhase::script;
  double place_seconds = 0;   ///< since the rank entered the phase
  std::string waits_for;      ///< of the submitted operations, the first by name; empty: the rank does not wait
  double waited_seconds = 0;  ///< since one of the submitted operations last made progress
  GpuProgress gpu = GpuProgress::none;
  std::string gpu_late{};    ///< computing: the operation whose tensor the GPU has not computed
  std::string waits_what{};  ///< "allreduce of [16] float32"; empty: waits_for begins with its kind
  double idle_seconds = 0;   ///< since the rank last computed or printed; 0: less than a minute
};
std::string to_json(const StatusReport& s);
StatusReport status_report_from_json(const std::string& text);

}  // namespace hvd::wire

/// @file report.h — what a job used, in two or three lines at its end, or as one line of JSON.  Pure.
#pragma once
#include <string>
#include <vector>

#include "wire/death.h"

namespace hvd::launcher {

/// @param deaths        of all ranks that ended, with times in one clock
/// @param wall_seconds  from hvdrun's start
std::vector<std::string> report_lines(const std::vector<wire::DeathRecord>& deaths, double wall_seconds);

/// The same for programs, with every rank: time from the first death on, processor time, memory, cause.
/// @param first_cause  the rank whose failure ended the job; -1: none
std::string report_json(const std::vector<wire::DeathRecord>& deaths, double wall_seconds, int exit_code,
                        int first_cause);

}  // namespace hvd::launcher

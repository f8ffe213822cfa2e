/// @file report.h — what a job used, in two or three lines at its end.  Pure.
#pragma once
#include <string>
#include <vector>

#include "wire/death.h"

namespace hvd::launcher {

/// @param deaths        of all ranks that ended, with times in one clock
/// @param wall_seconds  from hvdrun's start
std::vector<std::string> report_lines(const std::vector<wire::DeathRecord>& deaths, double wall_seconds);

}  // namespace hvd::launcher

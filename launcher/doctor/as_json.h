/// @file as_json.h — what hvdrun doctor found, for programs.  Pure.
#pragma once
#include <string>
#include <vector>

#include "launcher/doctor/checkup.h"

namespace hvd::launcher {

/// One object: ready, hosts, reach_us, problems.  What a host did not tell is left out.
/// @param reach_us  addresses at which other hosts reach this one
std::string doctor_json(const std::vector<Answers>& all, const std::vector<Problem>& problems,
                        const std::vector<std::string>& reach_us);

}  // namespace hvd::launcher

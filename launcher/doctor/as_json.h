/// @file as_json.h — hvdrun doctor's findings as JSON.  Pure.
#pragma once
#include <string>
#include <vector>

#include "launcher/doctor/checkup.h"

namespace hvd::launcher {

/// One object: ready, hosts, reach_us, problems.  Answers that a host did not give are left out.
/// @param reach_us  addresses at which other hosts reach this one
std::string doctor_json(const std::vector<Answers>& all, const std::vector<Problem>& problems,
                        const std::vector<std::string>& reach_us);

}  // namespace hvd::launcher

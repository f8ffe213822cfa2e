/// @file unused_options.h — options that have no effect on this job.
#pragma once
#include <string>
#include <vector>

#include "launcher/job/job.h"

namespace hvd::launcher {

/// One line for each option on the command line or in the config file that this job does not use, though its user may
/// count on it.
std::vector<std::string> remarks_on_unused(const Job& job);

}  // namespace hvd::launcher

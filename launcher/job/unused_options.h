/// @file unused_options.h — options that have no effect on this job.
#pragma once
#include <string>
#include <vector>

#include "launcher/job/job.h"

namespace hvd::launcher {

/// One line for each option that has no effect on this job, although the user may rely on it.  Looks at the options of
/// the command line and the config file.
std::vector<std::string> remarks_on_unused(const Job& job);

}  // namespace hvd::launcher

/// @file job_environment.h — the environment that a job gets from its hvdrun.
#pragma once
#include <string>
#include <vector>

namespace hvd::launcher {

/// @p lines ("NAME=value") as they are; where hvdrun itself runs inside a rank of another job, without what that job's
/// launcher told the rank about itself: an mpirun that sees these takes itself for a part of the outer job and ends.
/// The user's own settings of Open MPI cannot be told from the outer launcher's there, and go too.  Pure.
std::vector<std::string> job_environment(std::vector<std::string> lines);

/// The same of this process.
std::vector<std::string> job_environment();

}  // namespace hvd::launcher

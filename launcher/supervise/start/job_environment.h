/// @file job_environment.h — the environment that a job gets from its hvdrun.
#pragma once
#include <string>
#include <vector>

namespace hvd::launcher {

/// The variables of @p lines ("NAME=value") that the job gets.  Pure.
///
/// If hvdrun runs inside a rank of another job, the other job's launcher has set variables for that rank.  These
/// variables are left out, because an mpirun with them would act as a part of the other job, and end.  The user's
/// settings of Open MPI look like the launcher's, and are left out too.
std::vector<std::string> job_environment(std::vector<std::string> lines);

/// The job's variables, from this process's environment.
std::vector<std::string> job_environment();

}  // namespace hvd::launcher

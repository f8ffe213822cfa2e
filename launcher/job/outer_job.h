/// @file outer_job.h — keeps a job's settings from a second job that one of its ranks starts.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace hvd::launcher {

/// The value of HVD_SET_BY_HVDRUN for a rank with the variables @p env.  The value has a line "NAME=value" for each of
/// @p names in @p env.  A value of several lines is left out.
std::string set_by_hvdrun(const std::map<std::string, std::string>& env, const std::vector<std::string>& names);

/// Removes from this process's environment the variables that HVD_SET_BY_HVDRUN lists, if they still have the listed
/// value, and HVD_SET_BY_HVDRUN itself.  Call it before a second thread exists.
///
/// The variables are settings of the outer job, one of whose ranks has started this hvdrun.  With them, the inner job
/// would overwrite the outer job's timeline, and resume from the outer job's commits.
void forget_outer_job();

}  // namespace hvd::launcher

/// @file outer_job.h — a job that a rank of another job starts does not take the other job's settings.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace hvd::launcher {

/// The value of HVD_SET_BY_HVDRUN for a rank with the variables @p env: a line "NAME=value" for each of @p names that
/// is in it.  A value of several lines is left out.
std::string set_by_hvdrun(const std::map<std::string, std::string>& env, const std::vector<std::string>& names);

/// Removes from this process's environment the variables that HVD_SET_BY_HVDRUN lists, if they still have the listed
/// value, and HVD_SET_BY_HVDRUN itself.  Call it before a second thread exists.
///
/// They are settings of the outer job, whose rank has started this hvdrun: its timeline, its folder for commits.  The
/// inner job would write the one, and resume from the other.
void forget_outer_job();

}  // namespace hvd::launcher

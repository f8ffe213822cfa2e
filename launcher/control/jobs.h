/// @file jobs.h — this user's jobs on this host, as others of his processes see them: hvdrun ps, stacks and kill.
///
/// A job is known by its folder and the process that owns it, so that one which is stopped, or too busy to answer, is
/// seen and can be ended all the same.
#pragma once
#include <string>
#include <vector>

#include "base/maker.h"

namespace hvd::launcher {

struct RunningJob {
  std::string folder;
  Maker owner;
  std::string state;   ///< "runs"; "stopped" by a signal; "silent": it gave no answer
  std::string status;  ///< JSON; where it does not run, as it was at the job's beginning
};

/// Leaves @p status in the job's folder, for when it cannot answer.
void leave_status(const std::string& folder, const std::string& status);

/// Those that are past their first moments.  Takes 2 s for each that is silent.
std::vector<RunningJob> running_jobs();

/// hvdrun ps [--json], stacks [JOB], kill [JOB].  @param words  the command and its arguments.  Returns the exit code.
int job_command(const std::vector<std::string>& words);

}  // namespace hvd::launcher

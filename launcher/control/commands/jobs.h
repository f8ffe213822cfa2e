/// @file jobs.h — this user's jobs on this host, seen from other processes of the user: hvdrun ps, top, stacks,
/// timeline and kill.
///
/// A job is found by its folder and by the process that owns the folder.  So a job that is stopped, or too busy to
/// answer, is listed too, and can be ended.
#pragma once
#include <string>
#include <vector>

#include "base/process/maker.h"

namespace hvd::launcher {

struct RunningJob {
  std::string folder;
  Maker owner;
  std::string state;   ///< "runs"; "stopped" by a signal; "silent": it gave no answer
  std::string status;  ///< JSON; of a job that does not run: the status at its beginning
};

/// Writes @p status into the job's folder: the answer for times when the job itself gives none.
void leave_status(const std::string& folder, const std::string& status);

/// All jobs that have left their status.  Takes 2 s for each job that is silent.
std::vector<RunningJob> running_jobs();

/// hvdrun ps [--json], top [JOB], stacks [JOB], timeline [JOB] start|stop, kill [JOB].  @param words  the command and
/// its arguments.  Returns the exit code.
int job_command(const std::vector<std::string>& words);

}  // namespace hvd::launcher

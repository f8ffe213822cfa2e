/// @file jobs.h — this user's jobs on this host, seen from other processes of the user: hvdrun ps, top, stacks,
/// timeline, attach and kill.
///
/// A job is found by its folder and by the process that owns the folder.  So a job that is stopped, or too busy to
/// answer, is listed too, and can be killed.
#pragma once
#include <string>
#include <vector>

#include "base/process/maker.h"

namespace hvd::launcher {

struct RunningJob {
  std::string folder;
  Maker owner;
  std::string state;   ///< "runs"; "stopped" by a signal; "silent": no answer came
  std::string status;  ///< JSON; for a job that gives no answer: its status at the start
};

/// Writes @p status into the job's folder, for callers that get no answer from the job.
void leave_status(const std::string& folder, const std::string& status);

/// All jobs that have called leave_status().  Waits up to 2 s for the answer of each job.
std::vector<RunningJob> running_jobs();

/// hvdrun ps [--json], top [JOB], stacks [JOB], timeline [JOB] start|stop, attach [JOB] RANK, kill [JOB].
/// @param words  the command and its arguments
/// @return the exit code
int job_command(const std::vector<std::string>& words);

}  // namespace hvd::launcher

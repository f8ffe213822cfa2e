/// @file jobs.h — hvdrun ps, top, stacks, timeline, attach and kill: this user's jobs on this host.
///
/// A job is found by its folder and by the process that owns the folder.  So ps and kill also reach a job that is
/// stopped or too busy to answer.
#pragma once
#include <string>
#include <vector>

#include "base/process/maker.h"

namespace hvd::launcher {

struct RunningJob {
  std::string folder;
  Maker owner;
  std::string state;   ///< "runs"; "stopped" by a signal; "silent": it has not answered
  std::string status;  ///< the job's answer, JSON; without an answer: the status of leave_status()
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

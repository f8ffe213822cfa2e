/// @file join.h — hvdrun join: offers this host to a job that waits for hosts (hvdrun --listen).
#pragma once
#include "launcher/options/settings.h"

namespace hvd::launcher {

/// `hvdrun join HOST:PORT`.  Returns the job's exit code after the job has ended.  Throws Error{unavailable} if no job
/// takes this host within --elastic-timeout.  Throws Error{peer_lost} if the connection ends before the job.
int join_job(const CommandLine& line, const Environment& environment);

}  // namespace hvd::launcher

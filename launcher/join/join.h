/// @file join.h — hvdrun join: offers this host to a job that waits for hosts (hvdrun --listen).
#pragma once
#include "launcher/options/settings.h"

namespace hvd::launcher {

/// `hvdrun join HOST:PORT`.  Returns the job's exit code when the job has ended.
/// Throws Error{unavailable} when no job takes this host within --elastic-timeout, and Error{peer_lost} when the
/// connection ends before the job.
int join_job(const CommandLine& line, const Environment& environment);

}  // namespace hvd::launcher

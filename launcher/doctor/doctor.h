/// @file doctor.h — hvdrun doctor: looks at all hosts of a job at once, before the job starts.
#pragma once
#include "launcher/options/settings.h"

namespace hvd::launcher {

/// Prints a matrix and a line for each problem, or with --json one object.  Returns 0, or 4 when a job could not run.
/// @param line  hosts, interpreter and the like as for a job; the payload may be missing
int doctor(CommandLine line, const Environment& environment);

}  // namespace hvd::launcher

/// @file doctor.h — hvdrun doctor: looks at all hosts of a job at once, before the job starts.
#pragma once
#include "launcher/options/settings.h"

namespace hvd::launcher {

/// Prints a matrix and a line for each problem, or with --json one object.  Returns 4 if a job could not run, else 0.
/// @param line  the options of a job (hosts, interpreter, …); the payload may be missing
int doctor(CommandLine line, const Environment& environment);

}  // namespace hvd::launcher

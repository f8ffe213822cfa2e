/// @file result_files.h — the files that hvdrun writes at a job's end.
#pragma once
#include "launcher/options/settings.h"

namespace hvd::launcher {

/// Throws Error{usage} if the verdict, the report or the metrics could not be written where @p settings say: hours
/// later, the job's end would be too late to find out.  Writes nothing.
void need_result_files(const Settings& settings);

}  // namespace hvd::launcher

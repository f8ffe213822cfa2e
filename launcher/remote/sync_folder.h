/// @file sync_folder.h — hvdrun --sync: copies a folder to all other hosts of a job before the job starts.
#pragma once
#include <vector>

#include "base/error.h"
#include "launcher/job/job.h"

namespace hvd::launcher {

/// Copies the folder of --sync into the same path on each other host, through the job's ssh, to all hosts at once.
/// Then runs `uv sync --frozen` there, if the folder has a uv.lock and the host has uv.
/// - A folder on another host is written only if --sync has made it.  Otherwise nothing is changed there.
/// - A file of an earlier copy that no longer exists here is removed there, unless it was changed there.
/// - All hosts get the same bytes, even if files change meanwhile.
/// Prints progress.  Returns an error for each host that got no copy.  Throws Error for a folder that cannot be copied.
std::vector<Error> sync_folder(Job& job, const Environment& environment);

}  // namespace hvd::launcher

/// @file result_files.h — the files that hvdrun writes at a job's end, and the folder that keeps an elastic state.
#pragma once
#include <string>
#include <vector>

#include "base/file.h"
#include "launcher/options/settings.h"

namespace hvd::launcher {

/// FIFOs among a job's result files.
struct ResultPipes {
  std::vector<Fd> open;  ///< keep them until the job's end: a FIFO's reader ends when its last writer closes
  std::vector<std::string> remarks;  ///< lines for the user: FIFOs that no process reads yet
};

/// Throws Error{usage} if the verdict, the report or the metrics cannot be written to the paths in @p settings.  Writes
/// nothing.  The job's end, hours later, would be too late for this error.
ResultPipes need_result_files(const Settings& settings);

/// Throws Error{usage} if no file could be made in --state-dir on this host.  Makes nothing.
void need_state_folder(const Settings& settings);

}  // namespace hvd::launcher

/// @file job_folder.h — the job's own folder: a private place for its unix socket and ssh's messages.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/own_folder.h"

namespace hvd::launcher {

/// Under $XDG_RUNTIME_DIR, else $TMPDIR, else /tmp; removed with its files by the destructor.  What a SIGKILLed hvdrun
/// left there is removed by the next one.
class JobFolder {
 public:
  JobFolder();

  const std::string& path() const { return folder_->path(); }
  /// Where a job of this host alone listens; one over several hosts listens at control_address() as well as on the
  /// network.
  std::string local_address() const { return "unix://" + path() + "/local.sock"; }
  std::string control_address() const { return "ipc://" + path() + "/control.sock"; }

 private:
  std::unique_ptr<OwnFolder> folder_;
};

/// Those of this user's jobs that run here, wherever they may be.
std::vector<LivingFolder> folders_of_jobs();

}  // namespace hvd::launcher

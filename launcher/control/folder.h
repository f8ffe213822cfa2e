/// @file folder.h — the job's own folder: a private place for its unix socket and ssh's messages.
#pragma once
#include <string>

#include "base/file.h"

namespace hvd::launcher {

/// Mode 0700, under $XDG_RUNTIME_DIR, else $TMPDIR, else /tmp; removed with its files by the destructor.  What a
/// SIGKILLed hvdrun left there is removed by the next one (a lock on the folder says whether its owner lives).
class JobFolder {
 public:
  JobFolder();
  ~JobFolder();
  JobFolder(const JobFolder&) = delete;
  JobFolder& operator=(const JobFolder&) = delete;

  const std::string& path() const { return path_; }
  /// Where a job of this host alone listens; one over several hosts listens at control_address() as well as on the
  /// network.
  std::string local_address() const { return "unix://" + path_ + "/local.sock"; }
  std::string control_address() const { return "ipc://" + path_ + "/control.sock"; }

 private:
  std::string path_;
  Fd lock_;
};

}  // namespace hvd::launcher

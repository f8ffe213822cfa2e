/// @file job_folder.h — a job's private folder: for its unix sockets and for the messages of ssh.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/files/own_folder.h"

namespace hvd::launcher {

/// The folder is made under $XDG_RUNTIME_DIR, else $TMPDIR, else /tmp: the first of these that has room for files.  The
/// destructor removes the folder and its files.  The next hvdrun removes the folder of one that SIGKILL has ended.
class JobFolder {
 public:
  JobFolder();

  const std::string& path() const { return folder_->path(); }
  /// A job of this host alone listens at local_address().  A job of several hosts listens at control_address(), and on
  /// the network.
  std::string local_address() const { return "unix://" + path() + "/local.sock"; }
  std::string control_address() const { return "ipc://" + path() + "/control.sock"; }

 private:
  std::unique_ptr<OwnFolder> folder_;
};

/// The folders of this user's jobs that run on this host.  Looks in every place where a job may have its folder.
std::vector<LivingFolder> folders_of_jobs();

}  // namespace hvd::launcher

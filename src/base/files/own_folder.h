/// @file own_folder.h — a private folder of one process, and the removal of such folders after their process is gone.
///
/// Each folder contains a mark: the symbolic link `.owner`, with a target that does not exist.  The target's text names
/// the process that owns the folder, the folder's inode, the host, and the host's boot.  A folder is removed only if it
/// belongs to this user and the mark has the folder's inode.  The removal follows no links and enters no mounts.
#pragma once
#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/process/maker.h"

namespace hvd {

class OwnFolder {
 public:
  /// Makes the folder PARENT/PREFIX and eight letters, with mode 0700 for any umask.
  /// @param owner  the process that owns the folder: the caller, or a process that outlives the caller
  /// Throws Error{unavailable}, also if another user could exchange the folder (base/files/trust.h).
  OwnFolder(const std::string& parent, std::string_view prefix, pid_t owner);
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;
  /// Removes the folder and its content.
  ~OwnFolder();

  const std::string& path() const { return path_; }
  /// Leaves the folder to its owner: the destructor does not remove it.  Returns its path.
  std::string release();

 private:
  std::string path_;
  Fd lock_;  ///< a lock on the folder, for other hosts that share this file system: they cannot see the process
};

/// The parent for an OwnFolder: $TMPDIR if the path is absolute and OwnFolder accepts it, else /tmp.
std::string place_for_own_folder();

/// Removes a folder of this user that has a mark.  Any process may be its owner.  False when the folder has no mark, or
/// a part of it remains.
bool remove_own_folder(const std::string& path);

/// Removes this user's folders PARENT/PREFIX… without a living owner: the process has ended, or its host has booted
/// again.
void sweep_own_folders(const std::string& parent, std::string_view prefix);

/// A folder of this user.  The folder's owner was started since this host's last boot, and may still live.
struct LivingFolder {
  std::string path;
  Maker owner;
};
std::vector<LivingFolder> living_folders(const std::string& parent, std::string_view prefix);

}  // namespace hvd

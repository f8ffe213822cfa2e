/// @file own_folder.h — a folder for one process's own files, and the removal of those whose process is gone.
///
/// Nothing is removed for its name alone.  A folder holds a link `.owner` that was made with it and leads nowhere; its
/// text says which process of which boot made which inode.  Only a folder of this user with such a link that fits, in
/// the very folder looked at, is ever emptied: no links are followed, no mounts entered.
#pragma once
#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/maker.h"

namespace hvd {

class OwnFolder {
 public:
  /// PARENT/PREFIX and eight letters: mode 0700 whatever the umask, owned by process @p owner, the caller or one that
  /// outlives it.  Throws Error{unavailable}.
  OwnFolder(const std::string& parent, std::string_view prefix, pid_t owner);
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;
  /// Removes it with all that is in it.
  ~OwnFolder();

  const std::string& path() const { return path_; }
  /// Leaves it to its owner.
  std::string release();

 private:
  std::string path_;
  Fd lock_;  ///< for as long as it lives: who shares this file system from another host cannot look for the process
};

/// Removes a folder of this user's that has the mark, whoever its owner is.  False when it is none, or not all went.
bool remove_own_folder(const std::string& path);

/// Removes this user's folders PARENT/PREFIX… whose owner is gone: it has ended, or its host was booted since.
void sweep_own_folders(const std::string& parent, std::string_view prefix);

/// A folder of this user's whose owner is not known to be gone.
struct LivingFolder {
  std::string path;
  Maker owner;
};
std::vector<LivingFolder> living_folders(const std::string& parent, std::string_view prefix);

}  // namespace hvd

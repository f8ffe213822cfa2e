/// @file own_folder.h — a private folder of one process, and the removal of such folders once their process is gone.
///
/// Nothing is removed for its name alone.  Each folder holds a link `.owner` that leads nowhere; the text of the link
/// says which process made the folder, in which boot, and the folder's inode.  A folder is emptied only if it belongs
/// to this user and its link fits the inode.  No other links are followed and no mounts entered.
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
  /// PARENT/PREFIX and eight letters: mode 0700 whatever the umask, owned by process @p owner, the caller or one that
  /// outlives it.  Throws Error{unavailable}, also where another user could put a folder of his own in its place
  /// (base/files/trust.h).
  OwnFolder(const std::string& parent, std::string_view prefix, pid_t owner);
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;
  /// Removes it with all that is in it.
  ~OwnFolder();

  const std::string& path() const { return path_; }
  /// Gives the folder up: the destructor leaves it to its owner.  Returns its path.
  std::string release();

 private:
  std::string path_;
  Fd lock_;  ///< held for life: another host that shares this file system sees the lock, but not the process
};

/// Where to make a folder of one's own: $TMPDIR if it is absolute and OwnFolder takes it, else /tmp.
std::string place_for_own_folder();

/// Removes a folder of this user that has the mark, whichever process owns it.  False when it has no mark, or could not
/// be removed whole.
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

/// @file trust.h — checks whether other users could have chosen a file that is read or run here.
///
/// A path is followed from / by descriptors, link by link.
/// - Trusted users are this user, root and the owner of /.  The owners of this program and of the folders above it are
///   trusted too.  These users could have changed the program itself.  For the same reason, others may write to the
///   folders above this program.
/// - Another user could have chosen the file in two cases.  The user owns the file or a folder of its path.  Or the
///   user may write to one of them.
/// - Exception: others may write to a sticky folder if the path's entry in that folder belongs to a trusted user.
/// Modes and POSIX access lists are checked.  Further rights that a file server grants are not visible.
#pragma once
#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace hvd {

/// The use of a path.
enum class PathUse : unsigned char {
  file,     ///< a file to read or run
  modules,  ///< a folder to import from; others may not write to it, even if it is sticky
};

/// Further users whose files are accepted.  A cluster's software often belongs to a special user.
struct SoftwareOwners {
  bool anyone = false;  ///< accepts any one user; PathCheck::software_owner tells which
  std::vector<uid_t> known;
};

/// The result of look_at().
struct PathCheck {
  Fd fd;          ///< O_PATH; empty if the path cannot be opened
  int error = 0;  ///< errno, if fd is empty
  bool is_folder = false;
  bool is_file = false;                 ///< a regular file, a device, or an inherited descriptor (/dev/stdin, <(…))
  std::string doubt, hint;              ///< the doubt about another user, and advice; empty: there is no doubt
  std::optional<uid_t> software_owner;  ///< the accepted user of SoftwareOwners, if one owns a part of the path

  /// Throws Error{usage} unless `doubt` is empty.  @p path  as the user wrote it
  void need_trust(const std::string& path) const;
  /// The path without links, as the kernel knows it.
  std::string real_path() const;
};

/// Follows and checks a path.  Does not throw: PathCheck has errors and doubts.
/// @param path  a relative path begins at the working folder
PathCheck look_at(const std::string& path, PathUse purpose = PathUse::file, const SoftwareOwners& software_owners = {});

/// Checks @p path, and reads the same file through the checked descriptor.  Never waits for the writer of a FIFO.
/// Throws Error{usage} as read_file() does, and if other users could have chosen the file.
/// @param by_anybody  accepts files that other users could have chosen
std::string read_trusted(const std::string& path, std::size_t limit_bytes, bool by_anybody);

/// Reads the file that look_at() found.  Throws Error{usage} as read_file() does.
std::string read_found(const PathCheck& found, const std::string& path, std::size_t limit_bytes);

/// @p folders, such as the value of PATH, without relative and empty entries, which depend on the working folder.
std::string absolute_only(const std::string& folders);

}  // namespace hvd

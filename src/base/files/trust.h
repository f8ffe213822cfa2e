/// @file trust.h — which other users could have chosen a file that is read or run here.
///
/// A path is followed from / by descriptors, link by link.
/// - Trusted users: this user, root, the owner of /, and the owners of this program and of the folders on the way to it
///   (they could have changed the program itself).  For the same reason the folders that hold this program may be
///   writable for others.
/// - Any other user could have chosen the file if he owns the file or a folder on the way, or may write to one of them.
/// - A sticky folder on the way may be writable for others, if the entry taken from it belongs to a trusted user.
/// Modes and POSIX access lists are checked.  Further rights that a file server grants are invisible.
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
  file,     ///< to be read or run
  modules,  ///< a folder to import from: nobody else may put files there, sticky or not
};

/// Users who are not trusted, but whose programs are run: the software of a cluster often has an owner of its own.
struct SoftwareOwners {
  bool anyone = false;  ///< any user, but one only: PathCheck::software_owner
  std::vector<uid_t> known;
};

/// The result of look_at().
struct PathCheck {
  Fd fd;          ///< O_PATH; none when it is not there
  int error = 0;  ///< the errno, when fd is none
  bool is_folder = false;
  bool is_file = false;                 ///< regular, or handed to this process as a descriptor (/dev/stdin, <(…))
  std::string doubt, hint;              ///< which other user could have chosen the file, and what to do; empty: none
  std::optional<uid_t> software_owner;  ///< the user of SoftwareOwners on whom the file depends

  /// Throws Error{usage} with the doubt, if there is one.  @p path  as the user wrote it
  void need_trust(const std::string& path) const;
  /// The path without links, as the kernel knows it.
  std::string real_path() const;
};

/// @param path  relative ones begin at the working folder
PathCheck look_at(const std::string& path, PathUse purpose = PathUse::file, const SoftwareOwners& software_owners = {});

/// Checks @p path and reads the very file that was checked.  Never waits for a writer of a FIFO.
/// Throws Error{usage} as read_file() does, and for a doubt unless @p by_anybody.
std::string read_trusted(const std::string& path, std::size_t limit_bytes, bool by_anybody);

/// Reads the file that look_at() found.
std::string read_found(const PathCheck& found, const std::string& path, std::size_t limit_bytes);

/// @p folders (the value of PATH, say) without the entries that depend on the working folder: relative and empty ones.
std::string absolute_only(const std::string& folders);

}  // namespace hvd

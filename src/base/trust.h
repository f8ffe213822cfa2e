/// @file trust.h — who besides this user could have chosen what is read or run here.
///
/// A path is followed from / by descriptors, link by link.  Trusted are this user, root, who owns / and who owns this
/// very program or a folder on the way to it: he could have changed the program itself.  For the same reason it says
/// nothing against a folder that holds this program that others may write to it.  Anybody else who owns a folder on the
/// way or what lies at the end, or may write to one of them, could have put it there.  A folder that others may write
/// to is harmless on the way if it is sticky and what is taken from it is a trusted user's.  Modes and POSIX access
/// lists are looked at; what a file server allows beyond them cannot be seen.
#pragma once
#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace hvd {

/// What lies at the end of a path.
enum class PathUse : unsigned char {
  file,     ///< to be read or run
  modules,  ///< a folder to import from: nobody else may put files there, sticky or not
};

/// Users whose programs are run although they are not trusted: a cluster's software has an owner of its own.
struct SoftwareOwners {
  bool anyone = false;  ///< any one user, who then is PathCheck::software_owner
  std::vector<uid_t> known;
};

/// What a path led to.
struct PathCheck {
  Fd fd;          ///< O_PATH; none when it is not there
  int error = 0;  ///< then: why, an errno
  bool is_folder = false;
  bool is_file = false;                 ///< regular, or handed to this process as a descriptor (/dev/stdin, <(…))
  std::string doubt, hint;              ///< who else could have chosen it, and what to do; empty: nobody
  std::optional<uid_t> software_owner;  ///< the one user of SoftwareOwners that it depends on

  /// Throws Error{usage} with the doubt, if there is one.  @p path  as the user knows it
  void need_trust(const std::string& path) const;
  /// Without links, as the kernel has it.
  std::string real_path() const;
};

/// @param path  relative ones begin at the working folder
PathCheck look_at(const std::string& path, PathUse purpose = PathUse::file, const SoftwareOwners& software_owners = {});

/// The bytes of the very file that was looked at.  Never waits for somebody to write into a FIFO.
/// Throws Error{usage} as read_file() does, and for a doubt unless @p by_anybody.
std::string read_trusted(const std::string& path, std::size_t limit_bytes, bool by_anybody);

/// The same for what look_at() found.
std::string read_found(const PathCheck& found, const std::string& path, std::size_t limit_bytes);

/// @p folders (PATH and its like) without those that depend on the working folder: relative and empty ones.
std::string absolute_only(const std::string& folders);

}  // namespace hvd

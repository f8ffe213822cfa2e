/// @file sync_script.h — the shell text that --sync runs on another host.  Pure.
///
/// One shell reads the first text, tells the list of an earlier copy, reads the second text and then the archive.  It
/// enters the folder once and checks it there, so that nobody can exchange it later.  The shell needs tar(1) and the
/// usual small programs, but nothing of hvdrun: the copy may bring hvdrun along.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "launcher/remote/sync_list.h"

namespace hvd::launcher {

/// Lines that the shell prints.
inline constexpr const char* sync_same = "hvd-sync same";  ///< the host shares the folder: nothing is copied
inline constexpr const char* sync_list = "hvd-sync list";  ///< the lines of the mark follow
inline constexpr const char* sync_end = "hvd-sync end";    ///< … and end
inline constexpr const char* sync_go = "hvd-sync go";      ///< the shell awaits the archive
inline constexpr const char* sync_uv = "hvd-sync uv";      ///< uv installs packages
inline constexpr const char* sync_done = "hvd-sync done";

/// The folder that is copied.
struct SyncSource {
  std::string folder;    ///< absolute, without links
  std::string identity;  ///< "INODE SECONDS" of the folder: a host with the same numbers shares it
  unsigned mode = 0700;  ///< for a new folder
  /// Users whose programs may be run there; nothing: anybody's, and the folders above may be open to all.
  std::optional<std::vector<uid_t>> software_owners;
};

/// The first text: makes or checks the folder, and enters it.
std::string sync_opening(const SyncSource& source);

/// The second text: removes what an earlier copy brought and is gone, then unpacks the archive.
/// @param old_ones  result of gone()
std::string sync_unpacking(const std::vector<SyncEntry>& old_ones, const std::vector<SyncEntry>& now);

}  // namespace hvd::launcher

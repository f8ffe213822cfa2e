/// @file sync_script.h — the shell text that --sync runs on another host.  Pure.
///
/// One shell reads the first text, prints the list of an earlier copy, then reads the second text and the archive.  The
/// shell enters the folder once and checks it there, so nobody can exchange the folder later.  The shell needs tar(1)
/// and the usual small programs.  The shell runs no program of hvdrun, because the copy may contain hvdrun.
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
  /// Users, besides this one, whose programs may run there.  nullopt: any user's programs may run, and anyone may write
  /// to the folders above.
  std::optional<std::vector<uid_t>> software_owners;
};

/// The first text: makes or checks the folder, and enters it.
std::string sync_opening(const SyncSource& source);

/// The second text: removes files that an earlier copy brought and this one lacks, then unpacks the archive.
/// @param old_ones  result of gone()
std::string sync_unpacking(const std::vector<SyncEntry>& old_ones, const std::vector<SyncEntry>& now);

}  // namespace hvd::launcher

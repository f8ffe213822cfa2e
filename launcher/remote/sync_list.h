/// @file sync_list.h — the content of a folder that --sync copies, and the list of it that each copy keeps.
#pragma once
#include <string>
#include <vector>

namespace hvd::launcher {

struct SyncEntry {
  std::string name;   ///< relative to the folder; never empty, without "." and ".."
  char kind = 'f';    ///< d: folder, f: file, l: symbolic link
  std::string stamp;  ///< "SIZE SECONDS" of a file or link: its size and time of change; empty for a folder
  bool operator==(const SyncEntry&) const = default;
};

struct SyncList {
  std::vector<SyncEntry> entries;  ///< sorted by name: a folder stands before its content
  unsigned long long bytes = 0;    ///< of all files
};

/// Reads a folder without following links.  Leaves out .git, .venv and __pycache__, sockets, pipes and devices.
/// Throws Error{usage} for a folder that cannot be read, and for one that is too large.
SyncList list_folder(const std::string& folder);

inline constexpr const char* sync_mark = ".hvdrun-sync";        ///< the file in each copy, with its list
inline constexpr const char* sync_mark_line = "hvdrun sync 1";  ///< its first line

/// The text of the mark.  A name is one line, with escaped line ends.  Pure.
std::string mark_text(const std::vector<SyncEntry>& entries);
/// The entries of a mark; lines that are no entries are ignored.  No name leads out of the folder.  Pure.
std::vector<SyncEntry> entries_of_mark(const std::vector<std::string>& lines);
/// The entries of @p before that are gone or have another kind @p now.  A folder stands after its content.  Pure.
std::vector<SyncEntry> gone(const std::vector<SyncEntry>& before, const std::vector<SyncEntry>& now);

}  // namespace hvd::launcher

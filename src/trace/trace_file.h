/// @file trace_file.h — a timeline on disk: only appended to, and limited in size.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/file.h"

namespace hvd::trace {

/// Thread: one at a time.
class TraceFile {
 public:
  /// Creates or empties @p path and writes the array's beginning.  Throws Error{usage}, its where @p option.
  TraceFile(std::string path, std::uint64_t max_bytes, const std::string& option);

  /// Writes whole lines.  At the size limit writes a mark that says so, and from then on nothing.  Lines for which the
  /// disk has no room are left out; the next are tried again.
  void write(std::string_view lines);
  /// Writes the last lines, even past the limit, and syncs.
  void write_end(std::string_view lines);

  bool full() const { return full_; }
  bool usable() const { return !full_ && !cut_; }
  /// One line for the user when something is missing in the file; else "".
  std::string warning() const;

 private:
  bool put(std::string_view lines);
  void make_room();

  const std::string path_;
  const std::uint64_t max_bytes_;
  Fd file_;
  std::uint64_t written_bytes_ = 0;
  bool regular_ = false;
  std::string recent_;         ///< the last whole lines of the file, longer than the file's end needs
  std::uint64_t dropped_ = 0;  ///< lines
  int error_ = 0;              ///< errno
  bool cut_ = false;           ///< the file ends within a line: a pipe whose reader is gone, say
  bool full_ = false;
};

}  // namespace hvd::trace

/// @file trace_file.h — a timeline on disk: appended only, limited in size.
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

  /// Whole lines.  Past the limit nothing more is written, but for a mark that says so.  What finds no room on the disk
  /// is left out, and the next is tried again.
  void write(std::string_view lines);
  /// The last lines, limit or not; syncs.
  void write_end(std::string_view lines);

  bool full() const { return full_; }
  bool usable() const { return !full_ && !cut_; }
  /// One line for the user when the file is not what it should be; "" otherwise.
  std::string warning() const;

 private:
  bool put(std::string_view lines);
  void make_room();

  const std::string path_;
  const std::uint64_t max_bytes_;
  Fd file_;
  std::uint64_t written_bytes_ = 0;
  bool regular_ = false;
  std::string recent_;         ///< the last whole lines of the file: more than the end needs
  std::uint64_t dropped_ = 0;  ///< lines
  int error_ = 0;              ///< errno
  bool cut_ = false;           ///< ends within a line: a pipe, say, whose reader is gone
  bool full_ = false;
};

}  // namespace hvd::trace

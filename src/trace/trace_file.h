/// @file trace_file.h — a timeline on disk: only appended to, and limited in size.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/files/gzip.h"
#include "trace/timeline.h"

namespace hvd::trace {

/// Thread: one at a time.
class TraceFile {
 public:
  /// Creates or empties @p path, of the format that its ending says, and begins it.  Throws Error{usage}, its where @p
  /// option; also where another process writes the file, which then stays as it is.
  TraceFile(std::string path, std::uint64_t max_bytes, const std::string& option);

  /// Writes whole events; to a file that ends in .gz as a gzip member of its own.  At half the size limit the file gets
  /// another name (older_path()), replaces an earlier file of that name, and begins anew: the two files hold the last
  /// part of the job.  A pipe cannot be renamed: at the limit it gets a last event that says so.  Events
  /// for which the disk has no room are left out; the next are tried again.  False: something was left out, or a new
  /// file begins.
  bool write(std::string_view events);
  /// Writes the end of the file, even past the limit, and syncs.
  void write_end(std::string_view text);

  TimelineFormat format() const { return format_; }
  /// t.older.json, t.older.json.gz
  static std::string older_path(const std::string& path);
  bool usable() const { return !full_ && !cut_; }
  /// One line for the user when something is missing in the file; else "".
  std::string warning() const;

 private:
  void begin();
  bool put(std::string_view events);
  void make_room();
  bool rotate();
  std::size_t events_within(std::size_t bytes) const;
  std::uint64_t count_events(std::size_t from) const;
  void keep_recent(std::size_t from, std::size_t to);

  const std::string path_;
  const TimelineFormat format_;
  const std::uint64_t max_bytes_;
  Fd file_;
  std::uint64_t written_bytes_ = 0;
  bool regular_ = false;
  std::string recent_;                 ///< the last whole events of the file, longer than the file's end needs
  std::unique_ptr<GzipMembers> gzip_;  ///< where the file's ending asks for it
  std::string opening_;                ///< first bytes of such a file, written with its first events
  struct Member {
    std::size_t bytes = 0;
    std::uint64_t events = 0;
  };
  std::deque<Member> recent_members_;  ///< of recent_, then
  std::uint64_t dropped_ = 0;          ///< events
  bool rotated_ = false, may_rotate_ = true;
  int error_ = 0;     ///< errno
  bool cut_ = false;  ///< the file ends within an event: a pipe whose reader is gone, say
  bool full_ = false;
};

}  // namespace hvd::trace

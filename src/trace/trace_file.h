/// @file trace_file.h — writes a timeline to a file of limited size.
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

/// Not thread-safe: one thread at a time.
/// Size: five of its members are conditions of the file that its warning names.
class TraceFile {
 public:
  /// Creates or empties @p path, and writes the first bytes of the format that its ending names.
  /// Throws Error{usage} with where = @p option, also if another process writes the file.  The other process's file is
  /// not changed.
  TraceFile(std::string path, std::uint64_t max_bytes, const std::string& option);

  /// Writes whole events.  A file that ends in .gz gets them as one gzip member.
  ///
  /// At half the size limit the file is renamed to older_path(), and a new file begins.  An earlier file of that name
  /// is replaced.  So the two files hold the last part of the job.  A pipe cannot be renamed: its last event says that
  /// the limit is reached.  If the disk has no room for events, they are left out; later events are tried again.
  ///
  /// Returns false if something was left out or a new file begins.
  bool write(std::string_view events);
  /// Writes the end of the file, also beyond the limit, and calls fsync(2).
  void write_end(std::string_view text);

  TimelineFormat format() const { return format_; }
  /// "t.older.json" for "t.json", "t.older.json.gz" for "t.json.gz".
  static std::string older_path(const std::string& path);
  bool usable() const { return !full_ && !cut_; }
  /// One line for the user if events are missing in the file or the timeline has two files; else "".
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
  std::string recent_;                 ///< the file's last whole events, longer than ending()
  std::unique_ptr<GzipMembers> gzip_;  ///< null unless the file is compressed
  std::string opening_;                ///< first bytes of a compressed file, written with the first events
  struct Member {
    std::size_t bytes = 0;
    std::uint64_t events = 0;
  };
  std::deque<Member> recent_members_;  ///< the gzip members in recent_
  std::uint64_t dropped_ = 0;          ///< number of events that were left out, without metadata
  bool rotated_ = false, may_rotate_ = true;
  int error_ = 0;     ///< errno
  bool cut_ = false;  ///< the file ends inside an event; an example is a pipe whose reader is gone
  bool full_ = false;
};

}  // namespace hvd::trace

/// @file timeline_file.h — the one timeline of a job.
///
/// Only whole events are appended, and written bytes never change.  So Perfetto can open the file however the job or
/// hvdrun ends.  A background thread turns records into text.  While the machine's cores are busy, the thread takes a
/// hundredth of one core.  The thread catches up when cores are idle, or in close().
/// Thread: the public functions belong to one thread.  Only close() may block.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace hvd::launcher {

struct TimelineFileOptions {
  std::string path;
  std::uint64_t max_bytes = std::uint64_t{1024} << 20;
};

class TimelineFile {
 public:
  /// Creates or empties the file.  Throws Error{usage} when it cannot be written: call it before anything is launched.
  explicit TimelineFile(TimelineFileOptions options);
  ~TimelineFile();  ///< like close(), but drops records that are not written yet
  TimelineFile(const TimelineFile&) = delete;
  TimelineFile& operator=(const TimelineFile&) = delete;

  /// @param host  as the user named it
  /// @param same_clock  the guard runs on this host; else clock_sample() gives the difference of the clocks
  void rank_started(int rank, std::string host, bool same_clock);
  /// Like rank_started(), for a rank that started before the timeline: its start is not shown.
  void rank_found(int rank, std::string host, bool same_clock);
  /// One ping and its answer (clock.h).
  void clock_sample(int rank, std::int64_t sent_ns, std::int64_t received_ns, std::int64_t guard_ns);
  /// @param records  the body of a Type::trace frame, unchanged
  void append(int rank, std::string body);
  /// Something was found about rank @p about.  @p name, @p arguments: see Timeline::event().  @p ns: in the clock of
  /// @p rank.
  void found(int rank, int about, std::string name, std::string arguments, std::int64_t ns);
  /// @p text  how the rank ended ("killed by SIGKILL"), for a mark in the rank's first row; empty: no mark
  void rank_ended(int rank, std::string text);
  /// Writes the remaining records within @p limit, ends the JSON array and syncs.  Returns a warning, or "".
  std::string close(std::chrono::milliseconds limit);

 private:
  class Writer;
  std::unique_ptr<Writer> writer_;
};

}  // namespace hvd::launcher

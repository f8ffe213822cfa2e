/// @file timeline_file.h — the one timeline of a job.
///
/// Appended only, whole events at a time, so that it opens in Perfetto whenever the job or hvdrun ends, however it
/// ends.  A thread of its own turns records into text; it yields to the ranks: while the machine's cores are busy it
/// takes a hundredth of one, and catches up when they rest or at close().
/// Thread: the public functions belong to one thread and never block, but for close().
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace hvd::launcher {

struct TimelineFileOptions {
  std::string path;
  int size = 1;  ///< ranks of the job
  std::uint64_t max_bytes = std::uint64_t{1024} << 20;
};

class TimelineFile {
 public:
  /// HVD_TIMELINE_MAX_MB as bytes, default 1024.  Throws Error{usage}.
  static std::uint64_t max_bytes_from_environment();

  /// Creates or empties the file.  Throws Error{usage} when it cannot be written: call it before anything is launched.
  explicit TimelineFile(TimelineFileOptions options);
  ~TimelineFile();  ///< as close(), without waiting for what was not written yet
  TimelineFile(const TimelineFile&) = delete;
  TimelineFile& operator=(const TimelineFile&) = delete;

  /// @param host  as the user named it
  /// @param same_clock  its guard runs on this host; otherwise clock_sample() tells
  void rank_started(int rank, std::string host, bool same_clock);
  /// One ping and its pong (clock.h).
  void clock_sample(int rank, std::int64_t sent_ns, std::int64_t received_ns, std::int64_t guard_ns);
  /// The body of a Type::trace frame, as it came.
  void append(int rank, std::string body);
  /// @p text says how, and becomes a mark in the rank's first row: "killed by SIGKILL"; empty: no mark.
  void rank_ended(int rank, std::string text);
  /// Writes what is left (as long as @p limit allows), closes the array, syncs.  Returns a warning for the user, or "".
  std::string close(std::chrono::milliseconds limit);

 private:
  class Writer;
  std::unique_ptr<Writer> writer_;
};

}  // namespace hvd::launcher

/// @file job_timeline.h — a job's timeline: of the whole job (--timeline-filename), or from `hvdrun timeline start` to
/// `stop`.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "launcher/control/session.h"
#include "launcher/control/timeline/timeline_file.h"
#include "launcher/mapping/job_map.h"
#include "wire/shared/agreement_finding.h"

namespace hvd::launcher {

/// Thread: the event loop's.
class JobTimeline {
 public:
  /// @param path  empty: there is no file yet.  Throws Error{usage} when it cannot be written.
  JobTimeline(const std::string& path, const JobMap& map, std::uint64_t max_bytes);

  bool has_file() const { return file_ != nullptr; }

  /// Events of the session.
  /// @{
  void rank_came(int rank, bool local);
  void rank_runs(Session& session, int rank) const;
  void rank_ended(int rank, const std::string& text);
  void records(int rank, std::string_view body);
  void found(int rank, const wire::AgreementFinding& found);
  void clock_sample(int rank, std::int64_t sent_ns, std::int64_t received_ns, std::int64_t guard_ns);
  /// @}

  /// For hvdrun timeline.  start() and stop() return the text for the user; an error begins with '!'.
  /// @param path   absolute
  /// @param named  the user gave @p path; false: a job with --timeline uses its own file instead
  std::string start(Session& session, const std::string& path, bool named);
  std::string stop(Session& session);

  /// Writes the rest within @p limit.  Returns a warning for the user, or "".
  std::string close(std::chrono::milliseconds limit);

 private:
  void open(const std::string& path);

  const JobMap& map_;
  const std::uint64_t max_bytes_;
  std::string path_;
  std::unique_ptr<TimelineFile> file_;
  bool asked_ = false;  ///< start() was called, and stop() was not
};

}  // namespace hvd::launcher

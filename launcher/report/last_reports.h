/// @file last_reports.h — how fast the same job was the last time, for this user on this machine.
///
/// Each job has a small file in $XDG_STATE_HOME/hvdrun/last-reports (else ~/.local/state).  There are at most 256
/// files: jobs with the same hash replace each other's file.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "launcher/report/diagnosis/diagnosis.h"

namespace hvd::launcher {

struct LastReport {
  double when_seconds = 0;  ///< CLOCK_REALTIME of its end
  std::int64_t steps = 0;
  double step_seconds = 0;
};

class LastReports {
 public:
  /// @param folder  empty: no report is kept
  explicit LastReports(std::string folder) : folder_(std::move(folder)) {}

  /// The last report of a job.  Nothing: there is no file, or it is another user's, or broken.
  /// @param job  equal for jobs that are the same: programs, arguments, number of ranks and hosts
  std::optional<LastReport> find(const std::string& job) const;
  /// Ignores errors.
  void keep(const std::string& job, const LastReport& report) const;

 private:
  std::string path_of(const std::string& job) const;
  std::string folder_;
};

/// "hvdrun: 23 % slower than the last time (172 ms a step, 2026-11-22 18:03)", or faster.  Empty: the difference is
/// below a tenth, or there are too few steps.
std::string compared_line(const Diagnosis& now, const LastReport& then);

}  // namespace hvd::launcher

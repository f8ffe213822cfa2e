/// @file last_reports.h — how fast the same job was the last time, on this machine and by this user.
///
/// One small file a job in $XDG_STATE_HOME/hvdrun/last-reports (else ~/.local/state), at most a few hundred: jobs that
/// share a file's number take it from each other.
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
  /// @param folder  empty: nothing is kept
  explicit LastReports(std::string folder) : folder_(std::move(folder)) {}
  /// By the user's environment; empty where there is no home.
  static std::string usual_folder();

  /// @p job  whatever makes two jobs the same: what runs, with which arguments, on how many ranks and hosts.
  /// A file that is not ours, or broken, is as good as none.
  std::optional<LastReport> find(const std::string& job) const;
  /// Without a word where it cannot.
  void keep(const std::string& job, const LastReport& report) const;

 private:
  std::string path_of(const std::string& job) const;
  std::string folder_;
};

/// "hvdrun: 23 % slower than the last time (172 ms a step, 2026-11-22 18:03)", or faster; empty for less than a tenth,
/// and for so few steps that it says nothing.
std::string compared_line(const Diagnosis& now, const LastReport& then);

}  // namespace hvd::launcher

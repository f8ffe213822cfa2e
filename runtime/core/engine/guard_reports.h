/// @file guard_reports.h — what a rank tells its guard, and through it hvdrun: failures, stalls, and that it waits.
///
/// Never waits for a guard that is slow: what does not get through is told the next time.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/status/rank_status.h"
#include "core/status/stall_check.h"
#include "wire/shared/failure.h"

namespace hvd::core {

/// Under the engine's drive lock.
class GuardReports {
 public:
  /// @p link: HVD_LINK_FD, the socket to the guard; -1: there is none.  @p status: the page that the guard reads.
  GuardReports(int link, RankStatus& status) : link_(link), status_(status) {}

  /// hvdrun's verdict names the rank that left.  After the callers have been told; tries for a tenth of a second.
  void failure(const wire::Failure& failure) const;
  /// All that waits for long by now: told every second, and once that nothing does any more.
  void stalls(std::vector<StallReport> waits, std::int64_t now_ns);

  /// This rank waits.  @p progress: grows while what it has submitted moves.  True when the page should say now what it
  /// waits for: with waits_for().
  bool waits(std::uint64_t progress, std::int64_t now_ns);
  void waits_for(const std::string& name) { status_.waits(name, since_ns_); }
  void goes_on();
  bool linked() const { return link_ >= 0; }

 private:
  const int link_;
  RankStatus& status_;
  std::int64_t stalls_told_ns_ = 0;               ///< 0: hvdrun knows of none
  std::uint64_t progress_ = 0;                    ///< when it was looked at
  std::int64_t since_ns_ = 0, page_told_ns_ = 0;  ///< nothing has moved since then; when the page was written
};

}  // namespace hvd::core

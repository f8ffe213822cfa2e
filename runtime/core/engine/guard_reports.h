/// @file guard_reports.h — a rank's reports to its guard, which passes them to hvdrun: failures, stalls and waits.
///
/// failure() waits for a slow guard at most 0.1 s.  If the guard is slow, a stall report is dropped; the next one
/// contains it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/status/rank_status.h"
#include "core/status/stall_check.h"
#include "gpu/device.h"
#include "wire/shared/agreement_finding.h"
#include "wire/shared/failure.h"
#include "wire/shared/status_page.h"

namespace hvd::core {

/// The caller holds the engine's drive lock.
class GuardReports {
 public:
  /// @p link: HVD_LINK_FD, the socket to the guard; -1: no guard.  @p status: the page that the guard reads.
  GuardReports(int link, RankStatus& status) : link_(link), status_(status) {}

  /// Reports a failure, so that hvdrun's verdict names the rank that left.  Call it after the operations have ended.
  /// Gives up after a tenth of a second.
  void failure(const wire::Failure& failure) const;
  /// Reports all operations that have waited long: every second while some wait, and once when none waits any longer.
  void stalls(std::vector<StallReport> waits, std::int64_t now_ns);

  /// Reports a finding of --agreement.  If the guard is slow, the report is dropped.  False: there is no guard.
  bool finding(const wire::AgreementFinding& found) const;

  /// Call it while this rank waits.  @p progress: a number that grows while the rank's operations move.  True: call
  /// waits_for() with the name of the operation.
  bool waits(std::uint64_t progress, std::int64_t now_ns);
  /// @p gpu: the GPU's progress with operations that have ended on the host.  @p what: see
  /// wire::StatusPage::waits_what.
  void waits_for(const std::string& name, const std::string& what, const gpu::DeviceWait& gpu) {
    status_.waits(name, since_ns_, static_cast<wire::GpuProgress>(gpu.state), gpu.late, what);
  }
  void goes_on();
  bool linked() const { return link_ >= 0; }

 private:
  const int link_;
  RankStatus& status_;
  std::int64_t stalls_told_ns_ = 0;               ///< 0: no stall has been reported
  std::uint64_t progress_ = 0;                    ///< at the last call of waits()
  std::int64_t since_ns_ = 0, page_told_ns_ = 0;  ///< of the last move; of the last write to the page
};

}  // namespace hvd::core

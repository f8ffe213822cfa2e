/// @file collective_waits.h — which ranks wait in torch.distributed, and which ranks they wait for.  Pure.
///
/// Guards report which ranks wait (wire/collectives/collective_record.h).  When a wait is long, the caller asks all
/// ranks for their last collectives.  This class joins the answers (wire/collectives/collective_join.h).  Times are
/// seconds of the caller's clock.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "launcher/hang/incidents.h"
#include "wire/collectives/collective_join.h"

namespace hvd::launcher {

class CollectiveWaits {
 public:
  /// @param patience  seconds: the shortest wait for a collective that is reported.  Waits in init_process_group() have
  /// limits of their own.
  /// @param elastic  ranks may come and go: only recorded collectives count, and ranks that have answered
  explicit CollectiveWaits(double patience, bool elastic = false) : patience_(patience), elastic_(elastic) {}

  /// Takes a report of the rank's guard.  An empty report: the rank does not wait any more.
  void take(int rank, const wire::CollectiveWait& wait, double now);
  void rank_ended(int rank);
  /// True if no rank waits.
  bool is_quiet() const { return waits_.empty(); }
  /// True when the caller must ask all ranks now.  The next call returns false until the caller calls answered().
  bool must_ask(double now);
  /// Takes the answers.  A wait may have ended meanwhile.
  void answered(const wire::JobCollectives& job, double now);

  /// The incidents at the time @p now.  @p size: number of the job's ranks
  std::vector<Incident> incidents(double now, int size) const;

 private:
  struct Wait {
    wire::CollectiveWait told;
    double at = 0;
    double since() const { return at - told.seconds; }
    double init_since() const { return at - told.init->seconds; }
  };
  void drop_ended();
  void add_start_faults(const std::vector<int>& missing, int size, std::vector<std::string>& lines) const;
  void add_starts(double now, int size, std::vector<Incident>& found) const;

  const double patience_;
  const bool elastic_;
  std::map<int, Wait> waits_;
  std::set<int> through_;  ///< ranks that have left init_process_group()
  struct Difference {
    wire::CollectiveDifference what;
    double since = 0;
  };
  std::vector<Difference> differences_;
  bool asking_ = false;
  double next_ask_ = 0;
};

/// Tells why these calls of init_process_group() cannot succeed, one line for each fault.  Empty: the calls fit
/// together.
/// @param starts  the calls, by hvdrun's ranks
/// @param size    number of the job's ranks
std::vector<std::string> start_faults(const std::map<int, wire::GroupStart>& starts, int size);

}  // namespace hvd::launcher

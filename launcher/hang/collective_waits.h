/// @file collective_waits.h — who waits in torch.distributed, and whom the others wait for.  Pure.
///
/// Guards tell which ranks wait (wire/shared/collective_record.h).  Once a wait is long, all ranks are asked for their
/// last collectives, and their answers are joined (wire/shared/collective_join.h).  Times are seconds of the caller's
/// clock.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "launcher/hang/incidents.h"
#include "wire/shared/collective_join.h"

namespace hvd::launcher {

class CollectiveWaits {
 public:
  /// @param patience  seconds: the least wait that is worth a word
  explicit CollectiveWaits(double patience) : patience_(patience) {}

  /// What a rank's guard told.
  void take(int rank, const wire::CollectiveWait& wait, double now);
  void rank_ended(int rank);
  /// Nobody waits.
  bool is_quiet() const { return waits_.empty(); }
  /// True when the caller must ask all ranks now.  It then stays false until the caller calls answered().
  bool must_ask(double now);
  void answered(const wire::JobCollectives& job, double now);

  /// The incidents of this moment.  @p size: the job's ranks
  std::vector<Incident> incidents(double now, int size) const;

 private:
  struct Wait {
    wire::CollectiveWait told;
    double at = 0;
    double since() const { return at - told.seconds; }
    double init_since() const { return at - told.init->seconds; }
  };
  void add_starts(double now, int size, std::vector<Incident>& found) const;

  const double patience_;
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

/// Why these calls of init_process_group() cannot meet, one line for each fault; empty: they fit together.
/// @param starts  the calls, by hvdrun's ranks
/// @param size    number of the job's ranks
std::vector<std::string> start_faults(const std::map<int, wire::GroupStart>& starts, int size);

}  // namespace hvd::launcher

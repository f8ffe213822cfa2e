/// @file lost_ranks.h — the ranks that have left or died, and the process sets that fail for that reason.
///
/// look() runs only while a set has operations or GPU work under way and nothing moves.  The caller holds the engine's
/// drive lock.
#pragma once
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/batch/peers.h"
#include "core/engine/guard_reports.h"
#include "core/set/engine_context.h"
#include "core/set/process_set.h"

namespace hvd::core {

class LostRanks {
 public:
  /// @p shared and @p reports are notified when a set fails, and must outlive this object.
  LostRanks(const World& world, std::vector<PeerProcess> processes, EngineContext& shared, const GuardReports& reports)
      : peers_(world, std::move(processes)), shared_(shared), reports_(reports) {}

  /// Adds a lost rank that the coordinator, another rank or the transport has named.  @p departed: left in order;
  /// false: died.
  void add(int rank, const std::string& text, bool departed = true) { lost_.emplace(rank, RankLoss{text, departed}); }
  bool any() const { return !lost_.empty(); }
  /// Fails those of the @p stuck sets that wait for a lost rank.  A stuck set has operations or GPU work under way, and
  /// none has moved since the last check.  @p node: this node's memory of the global set.
  void look(std::span<const std::shared_ptr<ProcessSet>> stuck, const memory::Node& node);

 private:
  struct RankLoss {
    std::string text;
    bool departed = false;  ///< left in order; false: died
    int looks = 0;          ///< calls of look() since the loss was added
  };
  bool waits_for(const ProcessSet& set, int rank, const RankLoss& loss) const;

  Peers peers_;
  EngineContext& shared_;
  const GuardReports& reports_;
  std::map<int, RankLoss> lost_;  ///< by world rank
};

}  // namespace hvd::core

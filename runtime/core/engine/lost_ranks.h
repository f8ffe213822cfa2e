/// @file lost_ranks.h — which ranks are gone, and which process sets fail for that.
///
/// Looked at only while something waits and nothing moves.  Under the engine's drive lock.
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
  /// @p shared, @p reports: learn when a set fails.  They outlive this.
  LostRanks(const World& world, std::vector<PeerProcess> processes, EngineContext& shared, const GuardReports& reports)
      : peers_(world, std::move(processes)), shared_(shared), reports_(reports) {}

  /// The coordinator, another rank or the transport has said so.  @p departed: in order, else it died.
  void add(int rank, const std::string& text, bool departed = true) { lost_.emplace(rank, RankLoss{text, departed}); }
  bool any() const { return !lost_.empty(); }
  /// Nothing moves in these sets, though something waits there.  @p node: of the global set.  Fails those of them that
  /// wait for a rank that is gone.
  void look(std::span<const std::shared_ptr<ProcessSet>> stuck, const memory::Node& node);

 private:
  struct RankLoss {
    std::string text;
    bool departed = false;  ///< in order, else it died
    int looks = 0;          ///< while somebody waits
  };
  bool waits_for(const ProcessSet& set, int rank, const RankLoss& loss) const;

  Peers peers_;
  EngineContext& shared_;
  const GuardReports& reports_;
  std::map<int, RankLoss> lost_;  ///< by world rank
};

}  // namespace hvd::core

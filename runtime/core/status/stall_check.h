/// @file stall_check.h — finds the ranks for which others wait.
///
/// The check costs nothing until a rank waits.  A rank that has waited for a while rings the doorbell of its node's
/// leader.  The leader then checks repeatedly until no operation is incomplete.  Leaders report to their parents which
/// ranks have announced an operation.  Merged reports are a few runs of ranks.  All other ranks are missing.
///
/// Messages between two ranks do not count here: message_waits.h.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/world.h"
#include "core/settings/config.h"
#include "core/status/rank_status.h"
#include "negotiate/coordinator.h"
#include "negotiate/gather.h"
#include "negotiate/tree.h"
#include "wire/shared/stalls.h"

namespace hvd::core {

/// An operation that only some ranks of its set have submitted.
struct StallReport {
  std::string name;
  std::int64_t waited_ns = 0;
  negotiate::RankSet missing;  ///< world ranks
  int size = 0;                ///< of the set
};

/// Merges reports that miss the same ranks, for hvdrun.  Returns at most wire::most_stalls.
std::vector<wire::Stall> merge_stalls(std::vector<StallReport> reports);

/// The check of one leader.  The caller holds the drive lock.
class StallCheck {
 public:
  /// The leader's parts from which the check learns.
  struct Sources {
    const World& world;
    negotiate::Gather& gather;
    negotiate::TreeNode* tree;            ///< nullptr: one node
    negotiate::Coordinator* coordinator;  ///< nullptr: on another leader
    const RankStatus& status;
    std::uint32_t ids;
  };
  StallCheck(Sources sources, const Config& config);

  /// Call it with every command, before the command is published.  Operations that the command settles no longer wait.
  void published(negotiate::Command type, std::string_view body);
  /// A leader reports to its parent the operations that wait in its node, and the missing ranks.  The coordinator warns
  /// on stderr about operations that only some ranks have submitted.  The coordinator ends the world when such
  /// operations have waited too long.  True while there are such operations: call again within 0.1 s.
  bool check(std::int64_t now_ns);
  /// Adds to @p to the waits that are long compared with the median step, for reports to hvdrun.  On the coordinator
  /// only.
  void long_waits(std::int64_t now_ns, std::vector<StallReport>& to) const;

 private:
  struct Stall {
    std::int64_t since_ns = 0, told_ns = 0;
    std::uint32_t id = negotiate::no_slot;
    negotiate::RankSet here;  ///< ranks that have submitted the operation
    bool seen = false;
  };
  struct StallNotice {
    std::int64_t at_ns;
    negotiate::RankSet here;
  };
  void leave_out_pause(std::int64_t now_ns);
  void collect(std::int64_t now_ns);
  void tell_parent(std::int64_t now_ns);
  bool warn(std::int64_t now_ns);
  void refuse_crossed(std::int64_t now_ns);
  void settle(negotiate::Command type, std::string_view body);
  std::int64_t worth_telling_ns() const { return limits_.worth_telling_ns(sources_.status.median_step_ns()); }
  const std::string* name(std::uint32_t id) const;

  const Sources sources_;
  const StallLimits limits_;
  std::int64_t checked_ns_ = 0;  ///< time of the last check
  std::unordered_map<std::string, Stall> stalls_;
  /// Notices of other leaders, each about its part of the tree.
  std::unordered_map<std::string, std::vector<StallNotice>> notices_;
};

}  // namespace hvd::core

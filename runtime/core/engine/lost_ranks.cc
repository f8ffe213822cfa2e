#include "core/engine/lost_ranks.h"

#include <utility>

namespace hvd::core {

void LostRanks::look(std::span<const std::shared_ptr<ProcessSet>> stuck, const memory::Node& node) {
  for (Peers::PeerExit& g : peers_.find(node)) lost_.emplace(g.rank, RankLoss{std::move(g.text), g.departed});
  for (auto& [rank, loss] : lost_) ++loss.looks;
  for (const std::shared_ptr<ProcessSet>& set : stuck)
    for (int r = 0; r < set->world().size; ++r) {
      const auto lost = lost_.find(set->world().world_rank(r));
      if (lost == lost_.end() || !waits_for(*set, r, lost->second)) continue;
      const std::string names = set->names_under_way();
      (lost->second.departed ? shared_.departed : shared_.died).store(true);  // before the callers see the error
      set->fail_all(HVD_PEER_LOST, lost->second.text + "; under way: " + names);
      reports_.failure({HVD_PEER_LOST, lost->first, names});
      break;
    }
}

/// True if operations of @p set cannot end without its rank @p rank, which is lost.
bool LostRanks::waits_for(const ProcessSet& set, int rank, const RankLoss& loss) const {
  const World& w = set.world();
  // Every rank, the lost one too, has queued all operations on its GPU.  The lost rank's part may be done, so this
  // rank's part may end soon.
  if (set.outstanding() == 0 && loss.looks < 20) return false;
  // This rank does not know the progress of a rank on another node.  Waits for ten looks, about a second, until its
  // last messages have arrived.
  const auto r = static_cast<std::size_t>(rank);
  if (w.node_of[r] != w.node()) return loss.looks >= 10;
  return !set.can_end_without(set.node().board(w.local_of[r]).executed.load());
}

}  // namespace hvd::core

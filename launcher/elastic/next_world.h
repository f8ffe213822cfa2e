/// @file next_world.h — the members of the next world of an elastic job.  Pure.
///
/// A worker is a process that trains (with its guard).  Its number stays; its rank may differ in each world.  A slot is
/// a place for one worker on a host.  A spare is a worker without a slot: it waits until a slot of its host is free.
#pragma once
#include <compare>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace hvd::launcher {

struct SlotPlace {
  std::string host;
  int slot = 0;           ///< from 0
  bool is_spare = false;  ///< `slot` is then the number among the host's spares
  auto operator<=>(const SlotPlace&) const = default;
};

enum class WorkerStage {
  starting,  ///< is not ready to receive the state
  waiting,   ///< waits for its first world, ready to receive the state
  member,    ///< has been in a world, so it has the state
  doubtful,  ///< was in a world that broke while members got the state; no worker that surely has it is left
};

struct ElasticWorker {
  int number = 0;
  SlotPlace place;
  WorkerStage stage = WorkerStage::starting;
};

struct WorldLimits {
  int least = 1;
  std::optional<int> most{};   ///< nothing: as many as there are slots
  bool state_is_kept = false;  ///< --state-dir keeps the state, so all members may be new
  int spares = 0;              ///< on each host
};

struct ElasticHost {
  std::string name;
  int slots = 0;
};

struct WorldPlan {
  std::vector<int> members;                        ///< by rank; may be fewer than the limit
  std::vector<SlotPlace> start;                    ///< where to start workers, spares last
  std::vector<std::pair<int, SlotPlace>> promote;  ///< number of each spare that gets a slot, and the slot
  std::vector<int> leave;                          ///< workers that will be in no world
  bool suffices = false;                           ///< there are as many members as the limit asks for
  bool holds_on = false;                           ///< workers of removed hosts stay for now: too few would be left
};

/// Members keep their order, and come first on their host.  Ranks of a host follow each other.  A new worker is rank 0
/// only when no member lives.  Members whose slot is gone leave, once enough others have the state.  When all members
/// are doubtful, none of them leaves.
/// @param alive    members by rank, then other workers by age
/// @param hosts    the usable hosts, in the order in which they are filled
/// @param blocked  places where no worker is started, and slots that no spare gets
WorldPlan next_world(std::vector<ElasticWorker> alive, const std::vector<ElasticHost>& hosts, const WorldLimits& limits,
                     const std::set<SlotPlace>& blocked);

/// The next world's members by rank, for a new worker: as if all workers with a slot were ready.  A spare is told the
/// world that follows the death of its host's last member.
/// @param worker  one of the members; rank 0 only when no member lives
std::vector<int> expected_world(int worker, std::vector<ElasticWorker> alive, const std::vector<ElasticHost>& hosts,
                                const WorldLimits& limits, const std::set<SlotPlace>& blocked);

}  // namespace hvd::launcher

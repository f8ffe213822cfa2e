/// @file next_world.h — the members of the next world of an elastic job.  Pure.
///
/// A worker is a process that trains, with its guard.  A worker keeps its number, but may have another rank in each
/// world.  A slot is a place for one worker on a host.  A spare is a worker that waits until a slot of its host is
/// free.
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
  bool is_spare = false;  ///< then `slot` is the number among the host's spares
  auto operator<=>(const SlotPlace&) const = default;
};

enum class WorkerStage {
  starting,  ///< prepares, and is not ready to receive the state
  waiting,   ///< is ready to receive the state, and waits for its first world
  member,    ///< has been in a world, so it has the state
  doubtful,  ///< was in a world that broke while members got the state; no worker surely has the state
};

struct ElasticWorker {
  int number = 0;
  SlotPlace place;
  WorkerStage stage = WorkerStage::starting;
};

struct WorldLimits {
  int least = 1;
  std::optional<int> most{};   ///< nothing: the number of slots is the limit
  bool state_is_kept = false;  ///< --state-dir keeps the state, so all members may be new
  int spares = 0;              ///< number of spares on each host
};

struct ElasticHost {
  std::string name;
  int slots = 0;
};

struct WorldPlan {
  std::vector<int> members;                        ///< by rank; may be fewer than the limit
  std::vector<SlotPlace> start;                    ///< places in which to start workers, spares last
  std::vector<std::pair<int, SlotPlace>> promote;  ///< number of each spare that gets a slot, and the slot
  std::vector<int> leave;                          ///< workers that will be in no world
  bool suffices = false;                           ///< `members` can form a world: enough workers, with the state
  bool holds_on = false;  ///< members without a slot stay for now: they have the state, or are needed
};

/// Plans the next world.  Members keep their order, and come first on their host.  Ranks of a host are consecutive.  A
/// new worker is rank 0 only if no member lives.  A member without a slot leaves as soon as the other workers can go on
/// without it.  While a doubtful worker would be in the world, no member leaves.
/// @param alive    members by rank, then other workers by age
/// @param hosts    the usable hosts, in the order in which they are filled
/// @param blocked  places where no worker is started, and slots that no spare gets
WorldPlan next_world(std::vector<ElasticWorker> alive, const std::vector<ElasticHost>& hosts, const WorldLimits& limits,
                     const std::set<SlotPlace>& blocked);

/// Returns the expected members of the next world by rank, for the answer to a new worker.  All workers with a slot
/// count as ready.  A spare joins only after a death.  So if @p worker is a spare, the result leaves out the highest
/// rank of its host.
/// @param worker  the new worker, always one of the members; rank 0 only if no member lives
std::vector<int> expected_world(int worker, std::vector<ElasticWorker> alive, const std::vector<ElasticHost>& hosts,
                                const WorldLimits& limits, const std::set<SlotPlace>& blocked);

}  // namespace hvd::launcher

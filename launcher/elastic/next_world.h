/// @file next_world.h — who is in the next world of an elastic job.  Pure.
///
/// A worker is a process that trains (with its guard): its number is its own for its life, its rank is what each world
/// says.  A slot is a place for one worker on a host.  A spare is a worker without a slot: it waits until one of its
/// host is free.
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
  bool is_spare = false;  ///< a spare's: its number among the host's spares
  auto operator<=>(const SlotPlace&) const = default;
};

enum class WorkerStage {
  starting,  ///< is not ready to receive the state
  waiting,   ///< waits for its first world, ready to receive the state
  member,    ///< has been in a world, so it has the state
  doubtful,  ///< was in a world that broke while the state was given round, and nobody who surely has it is left
};

struct ElasticWorker {
  int number = 0;
  SlotPlace place;
  WorkerStage stage = WorkerStage::starting;
};

struct WorldLimits {
  int least = 1;
  std::optional<int> most{};   ///< nothing: as many as there are slots
  bool state_is_kept = false;  ///< outside the ranks, by --state-dir: all of them may be new
  int spares = 0;              ///< on each host
};

struct ElasticHost {
  std::string name;
  int slots = 0;
};

struct WorldPlan {
  std::vector<int> members;                        ///< by rank; fewer than the limit where there are not enough
  std::vector<SlotPlace> start;                    ///< where workers are to be started, spares last
  std::vector<std::pair<int, SlotPlace>> promote;  ///< spares that have got a slot: by number
  std::vector<int> leave;                          ///< not in the world, and not to be
  bool suffices = false;                           ///< members are as many as the limit asks for
  bool holds_on = false;  ///< the hosts named would leave too few: those that are there stay for now
};

/// Members keep their order and come first on their host; ranks of a host stand together; a new one is rank 0 only
/// where no member lives.  Members whose slot is gone leave, but not before others have the state and are enough; where
/// all are doubtful, none of them leaves.
/// @param alive    members by their rank, then others by age
/// @param hosts    those that may be used, in the order in which they are filled
/// @param blocked  places where nobody is to be started, and slots that no spare is to get
WorldPlan next_world(std::vector<ElasticWorker> alive, const std::vector<ElasticHost>& hosts, const WorldLimits& limits,
                     const std::set<SlotPlace>& blocked);

/// What a new worker is told of the next world: its members by rank, once all who have a slot are ready.  A spare
/// stands where it would if the last member of its host died.  @p worker  is one of them, and rank 0 only where no
/// member lives
std::vector<int> expected_world(int worker, std::vector<ElasticWorker> alive, const std::vector<ElasticHost>& hosts,
                                const WorldLimits& limits, const std::set<SlotPlace>& blocked);

}  // namespace hvd::launcher

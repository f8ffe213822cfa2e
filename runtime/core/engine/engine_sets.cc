/// @file engine_sets.cc — how callers look up, add and remove process sets.
#include <utility>

#include "base/error.h"
#include "core/engine/engine.h"

namespace hvd::core {

std::shared_ptr<const SetInfo> Engine::known(int id) const {
  if (id == HVD_GLOBAL_SET) {
    auto global = std::make_shared<SetInfo>();
    global->ranks = world_.world_ranks;
    global->rank = world_.rank;
    global->set = global_;
    return global;
  }
  auto k = sets_.find(id);
  if (!k)
    throw Error(Code::usage, "process set " + std::to_string(id), "does not exist, or was removed", "add it first");
  return k;
}

void Engine::change(SetChange& change) {
  const std::string name = change.name();
  CheckedRequest p;
  p.signature.kind = static_cast<std::uint8_t>(Kind::set_change);
  p.name = name;
  p.in = &change;
  Operation& op = run(set(), p);
  const int status = op.status;
  const std::string error = op.error;
  operations().release(op);
  if (status != HVD_OK) throw Error(static_cast<Code>(status), "", error);
  if (change.status != HVD_OK) throw Error(static_cast<Code>(change.status), name, change.error);
}

int Engine::add_set(std::vector<int> ranks) {
  SetChange c;
  c.ranks = std::move(ranks);
  if (c.ranks.empty()) throw Error(Code::usage, c.name(), "a process set needs at least one rank");
  std::vector<bool> seen(static_cast<std::size_t>(world_.size));
  for (int r : c.ranks) {
    if (r < 0 || r >= world_.size)
      throw Error(Code::usage, c.name(),
                  "there is no rank " + std::to_string(r) + " in a world of " + std::to_string(world_.size));
    if (seen[static_cast<std::size_t>(r)])
      throw Error(Code::usage, c.name(), "rank " + std::to_string(r) + " is in it twice");
    seen[static_cast<std::size_t>(r)] = true;
  }
  // Some ranks may look before the other set is added, and some after.  SetChangeStage looks again, so all ranks get
  // the same error.
  const bool all = c.ranks.size() == seen.size();
  if (const int id = all ? HVD_GLOBAL_SET : sets_.duplicate(c.ranks); id >= 0)
    throw Error(Code::usage, c.name(), "these ranks are process set " + std::to_string(id) + " already");
  change(c);
  return c.id;
}

void Engine::remove_set(int id) {
  if (id == HVD_GLOBAL_SET) throw Error(Code::usage, "process set 0", "is the world and cannot be removed");
  known(id);
  SetChange c;
  c.add = false;
  c.id = id;
  change(c);
}

}  // namespace hvd::core

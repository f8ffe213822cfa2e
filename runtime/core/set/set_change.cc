#include "core/set/set_change.h"

#include <algorithm>
#include <climits>
#include <cstdlib>

#include "base/error.h"
#include "base/fnv1a.h"

namespace hvd::core {

memory::Geometry geometry_of(int local_size, bool global, const Config& config) {
  memory::Geometry g;
  g.ranks = local_size;
  // An evicted id is not used again until all ranks have forgotten it.  The 1024 spare ids keep new names from waiting.
  g.words = (static_cast<std::uint32_t>(config.integer("HOROVOD_CACHE_CAPACITY")) + 1024 + 63) / 64;
  // A job may have many sets.  So each set gets less memory than the global one.
  const std::size_t eager = global ? 4 << 20 : 1 << 20;
  g.eager_bytes = std::min<std::size_t>(eager, (std::size_t{64} << 20) / static_cast<std::size_t>(g.ranks));
  if (!global) g.command_bytes = 128 << 10;
  g.agreement = config.text("HVD_AGREEMENT") != "off";
  return g;
}

std::string SetChange::name() const {
  if (!add) return "remove process set " + std::to_string(id);
  std::string text = "add process set [";
  std::uint64_t hash = fnv1a_start;  // for the name of a long list
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    hash = fnv1a_step(hash, static_cast<std::uint64_t>(ranks[i]));
    if (i < 32) text += (i ? ", " : "") + std::to_string(ranks[i]);
  }
  return ranks.size() <= 32 ? text + "]" : text + ", …] #" + std::to_string(hash);
}

SetChangeStage::SetChangeStage(Context context, std::vector<SetChange*> changes, ops::Rings& rings,
                               const ops::Nodes& nodes)
    : context_(std::move(context)), changes_(std::move(changes)), rings_(rings), nodes_(nodes) {
  next();
}

void SetChangeStage::next() {
  change_ = at_ < changes_.size() ? changes_[at_++] : nullptr;
  if (!change_) return;
  fresh_ = {};
  node_.reset();
  sharing_.reset();
  answers_.reset();
  mine_ = {HVD_OK, INT_MAX};
  share_.reset();
  if (change_->add)
    add();
  else
    remove();
}

/// Ends the change with an error.  All ranks find the same error, so they need no agreement.
void SetChangeStage::refuse(int status, const std::string& error) {
  change_->status = status;
  change_->error = error;
  next();
}

void SetChangeStage::add() {
  if (const int id = context_.sets.duplicate(change_->ranks); id >= 0)
    return refuse(HVD_USAGE, "these ranks are process set " + std::to_string(id) + " already");
  try {
    fresh_ = context_.sets.next(change_->ranks, context_.world.rank, context_.transport.streams());
  } catch (const Error& e) { return refuse(static_cast<int>(e.code), e.what()); }
  if (fresh_.rank < 0) return agree();
  if (gpu::SetDevice* device = splitting()) {
    share_ = device->share();
    mine_.blocks = share_->blocks();
  }
  world_ = context_.world.subset(fresh_.ranks);
  transport_ = context_.transport.split(fresh_.ranks, fresh_.stream);
  node_ = std::make_unique<memory::Node>(geometry_of(world_.local_size(), false, context_.config), world_.local_rank());
  sharing_ = std::make_unique<transport::Sharing>(*transport_, world_.locals(), node_->total_bytes());
}

/// The world's device, if it can be split for the new set; else nullptr.  Either on all ranks, or on none.
gpu::SetDevice* SetChangeStage::splitting() const {
  gpu::SetDevice* device = context_.batch.device();
  return device && device->splits() ? device : nullptr;
}

/// Makes the set, when the shared memory of its ranks on this node is mapped.
void SetChangeStage::form() {
  node_->attach(sharing_->memory());
  std::vector<int> locals;
  for (int r : world_.locals())
    locals.push_back(context_.world.local_of[static_cast<std::size_t>(fresh_.ranks[static_cast<std::size_t>(r)])]);
  node_->use_doorbells_of(context_.node, locals);
  std::vector<std::shared_ptr<unsigned char>> arenas;
  for (int l : locals) arenas.push_back(context_.arenas[static_cast<std::size_t>(l)]);
  node_->attach_arenas(std::move(arenas));
  fresh_.set = std::make_shared<ProcessSet>(world_, context_.config, transport_, std::move(*node_), context_.shared);
  fresh_.set->give_id(fresh_.id);
}

/// Gathers the results of all ranks.  If one rank has failed, no rank gets the set.
void SetChangeStage::agree() {
  ops::MovedTensor p;
  p.kind = Kind::allgather;
  p.in = reinterpret_cast<const unsigned char*>(&mine_);
  p.row_bytes = sizeof mine_;
  p.rows = 1;
  std::vector<ops::MovedTensor> parcels;
  parcels.push_back(std::move(p));
  answers_ = std::make_unique<ops::Movement>(rings_, nodes_, context_.transport, std::move(parcels));
}

bool SetChangeStage::step() {
  if (!change_) return false;
  if (answers_) {
    const bool moved = answers_->step();
    return answers_->done() ? finish() : moved;
  }
  try {
    const bool moved = sharing_->step();
    if (!sharing_->done()) return moved;
    form();
  } catch (const Error& e) {
    if (e.code != Code::unavailable) throw;
    mine_.status = static_cast<std::int32_t>(e.code);
    change_->error = e.what();
  }
  agree();
  return true;
}

/// Ends the change when all answers are there.  False: the GPU is still at work for the world, so call again.
bool SetChangeStage::finish() {
  gpu::SetDevice* device = splitting();
  if (device && !device->quiet()) return false;
  const std::vector<ops::MovedTensor> parcels = answers_->take();
  const std::unique_ptr<void, void (*)(void*)> owned(parcels.front().result, std::free);
  const auto* answers = static_cast<const Answer*>(owned.get());
  int blocks = INT_MAX;
  for (int r = 0; r < context_.world.size && change_->status == HVD_OK; ++r) {
    blocks = std::min(blocks, answers[r].blocks);
    if (answers[r].status == HVD_OK) continue;
    change_->status = answers[r].status;
    if (change_->error.empty()) change_->error = "rank " + std::to_string(r) + " could not make its shared memory";
  }
  if (device && blocks > 0 && change_->status == HVD_OK) {
    auto part = device->split(fresh_.rank, static_cast<int>(fresh_.ranks.size()), blocks, std::move(share_));
    if (fresh_.set) fresh_.set->batch().inherit(std::move(part));
  }
  if (change_->status == HVD_OK) {
    change_->id = fresh_.id;
    if (fresh_.set) context_.opened(fresh_.set);
    context_.sets.insert(std::move(fresh_));
  } else if (fresh_.set) {
    fresh_.set->close("the process set could not be made");
  }
  next();
  return true;
}

/// Removes a set, as all ranks have asked.  The set's operations under way end with an error, on all its ranks.
void SetChangeStage::remove() {
  const auto known = context_.sets.erase(change_->id);
  if (!known) return refuse(HVD_USAGE, "there is no process set " + std::to_string(change_->id));
  if (known->set) {
    known->set->close("process set " + std::to_string(change_->id) + " was removed");
    context_.closed(known->set);
  }
  next();
}

}  // namespace hvd::core

// The ids of names, and the slots of small tensors in shared memory.
#include <algorithm>
#include <bit>
#include <functional>

#include "negotiate/coordinator.h"

namespace hvd::negotiate {
namespace {

/// True if every rank can compute the result from the slots of all ranks.
bool can_be_eager(const Signature& s, bool many_nodes) {
  if (s.device >= 0 || (many_nodes && s.operation() != Kind::allreduce)) return false;
  switch (s.operation()) {
    case Kind::allreduce:
      return s.reduction() != Reduce::adasum;
    case Kind::broadcast:
    case Kind::reducescatter:
      return true;
    default:
      return false;  // other ranks' inputs may have any length
  }
}

constexpr std::uint32_t line = 64;

/// Larger slots take at most half of the memory, so that they leave room for smaller ones.
constexpr std::uint32_t large_slot = 8 << 10;

/// The bytes from one slot to the next.  Tiny tensors share cache lines.  For a thousand such tensors, most of the cost
/// is the lines that the other ranks' cores fetch.
std::uint32_t slot_stride(std::int64_t bytes) {
  const auto n = static_cast<std::uint32_t>(bytes);
  return n <= line / 2 ? std::max(std::bit_ceil(n), 8u) : (n + line - 1) / line * line;
}

}  // namespace

void Coordinator::evict(std::uint32_t id) {
  Id& i = ids_[id];
  TensorInfo& known = tensors_[id];
  ByteWriter w;
  w.put(id);
  publish(Command::evict, w);
  id_of_.erase(known.name);
  if (i.slot != no_slot) free_slots_[slot_stride(i.bytes)].push_back(i.slot);
  if (i.grouped)
    if (auto g = groups_.find(known.group); g != groups_.end()) std::erase(g->second.ready, id);
  i = Id{};
  known.name.clear();
  --live_;
  evicted_.emplace_back(published_, id);
}

/// The place of a name's hash in pushed_.
std::uint32_t& Coordinator::pushed_out(const std::string& name) {
  if (pushed_.empty()) pushed_.resize(2 * std::size_t{options_.capacity});
  return pushed_[std::hash<std::string>{}(name) / 0x10000 % pushed_.size()];
}

/// Makes room for the new name @p name if limit_ names have ids.  Raises limit_ if the name had been pushed out, or if
/// all names are in use at once.  Returns true if it has published a command.
bool Coordinator::make_room(const std::string& name) {
  if (live_ == 0 || live_ < limit_) return false;
  const auto hash = static_cast<std::uint32_t>(std::hash<std::string>{}(name));
  if (limit_ < options_.capacity && pushed_out(name) == hash) limit_ = std::min(2 * limit_, options_.capacity);
  bool any = false;
  while (live_ > 0 && live_ >= std::max(limit_, 1u)) {
    if (!evict_oldest()) {
      limit_ = std::max(limit_, std::min(live_ + 1, options_.capacity));
      break;
    }
    any = true;
  }
  return any;
}

/// An id that has no name.  Only unless no_id_left().
std::uint32_t Coordinator::take_id() {
  if (free_.empty()) {
    ids_.emplace_back();
    tensors_.emplace_back();
    batch_.resize((ids_.size() + 63) / 64);
    return static_cast<std::uint32_t>(ids_.size() - 1);
  }
  const std::uint32_t id = free_.back();
  free_.pop_back();
  return id;
}

/// Evicts the least recently used id.  Ids that are ready to run, or belong to a group under way, stay.  Returns false
/// if there is no other id.
bool Coordinator::evict_oldest() {
  if (none_to_evict_) return false;
  // The order of unused ids does not change, so one sort serves many evictions.
  for (bool looked = false;; looked = true) {
    while (!oldest_.empty()) {
      const auto [used, id] = oldest_.back();
      oldest_.pop_back();
      if (!ids_[id].live || ids_[id].used != used || ids_[id].chosen || in_group_under_way(id)) continue;
      if (limit_ < options_.capacity)
        pushed_out(tensors_[id].name) = static_cast<std::uint32_t>(std::hash<std::string>{}(tensors_[id].name));
      evict(id);
      return true;
    }
    if (looked) return !(none_to_evict_ = true);
    find_oldest();
  }
}

bool Coordinator::in_group_under_way(std::uint32_t id) const {
  return ids_[id].grouped && groups_.count(tensors_[id].group) != 0;
}

/// Fills oldest_ with the ids that can be evicted, least recently used last.
void Coordinator::find_oldest() {
  for (std::uint32_t id = 0; id < ids_.size(); ++id)
    if (ids_[id].live && !ids_[id].chosen && !in_group_under_way(id)) oldest_.emplace_back(ids_[id].used, id);
  std::sort(oldest_.begin(), oldest_.end(), std::greater<>());
}

void Coordinator::executed(std::uint64_t commands) {
  executed_ = std::max(executed_, commands);
  while (!evicted_.empty() && evicted_.front().first <= executed_) {
    free_.push_back(evicted_.front().second);
    evicted_.pop_front();
  }
}

std::uint32_t Coordinator::take_slot(std::int64_t bytes) {
  if (bytes <= 0 || bytes > static_cast<std::int64_t>(options_.eager_limit)) return no_slot;
  const std::uint32_t stride = slot_stride(bytes);
  auto& free = free_slots_[stride];
  if (free.empty()) {
    const std::uint32_t taken = std::max(stride, line);
    const std::size_t most = stride > large_slot ? options_.eager_bytes / 2 : options_.eager_bytes;
    if (slots_used_ + taken > most) return no_slot;
    for (std::uint32_t at = taken; at > 0; at -= stride)
      free.push_back(static_cast<std::uint32_t>(slots_used_) + at - stride);
    slots_used_ += taken;
  }
  const std::uint32_t slot = free.back();
  free.pop_back();
  return slot;
}

bool Coordinator::assign_waiting() {
  bool any = false;
  while (!agreed_.empty()) {
    // A name that keeps its id for one batch only pushes out no other name.  While no id is free, names wait.
    const bool passing = agreed_.front().second.operation() == Kind::set_change || is_made_name(agreed_.front().first);
    if (!passing && make_room(agreed_.front().first)) any = true;
    if (no_id_left() && evicted_.empty() && evict_oldest()) any = true;
    if (no_id_left()) return any;
    const std::uint32_t id = take_id();
    auto [name, signature] = std::move(agreed_.front());
    agreed_.pop_front();
    Id& i = ids_[id];
    i.live = true;
    i.fresh = true;
    i.grouped = signature.group_size != 0;
    i.on_gpu = signature.device >= 0;
    i.passing = passing;
    i.bytes = std::min(signature.payload_bytes(), std::int64_t{1} << 40);  // so that sums of it do not overflow
    // Between nodes narrow floats travel as f32.
    const bool widens = options_.many_nodes && is_narrow_float(signature.type());
    const std::int64_t wire_bytes =
        widens ? i.bytes * 4 / static_cast<std::int64_t>(element_bytes(signature.type())) : i.bytes;
    const bool eager = can_be_eager(signature, options_.many_nodes) && !i.passing &&
                       wire_bytes <= static_cast<std::int64_t>(options_.eager_limit);
    i.slot = eager ? take_slot(i.bytes) : no_slot;  // used from the tensor's second batch on
    i.used = last_batch_;
    tensors_[id] = {name, signature.group, signature.group_size};
    id_of_[name] = id;
    ++live_;
    ByteWriter w;
    w.put(id).put(i.slot).raw(name);
    publish(Command::assign, w);
    if (joining_) {
      ByteWriter s;
      s.put(id).raw(signature.blob());
      publish(Command::stand_in, s);
    }
    candidate(id);
    any = true;
  }
  return any;
}

}  // namespace hvd::negotiate

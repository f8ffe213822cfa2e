// Offers of small sums between two nodes; coordinator.h explains them.
#include <algorithm>
#include <map>
#include <utility>

#include "negotiate/coordinator.h"

namespace hvd::negotiate {

/// An offer is one batch of whole groups, so tensors that would make several batches are not offered.
std::optional<std::string> Coordinator::offer(std::uint64_t here, std::span<const std::uint32_t> ids) {
  constexpr std::size_t most = 1024;  // ids in one offer
  while (!under_way_.empty() && under_way_.front() <= here) under_way_.pop_front();
  const bool other_work = !under_way_.empty() || holding() || !offered_.empty();
  if (other_work || joining_ || options_.capacity == 0 || ids.empty() || ids.size() > most) return std::nullopt;
  std::int64_t bytes = 0;
  std::map<std::uint64_t, std::uint32_t> missing;  // by group
  for (const std::uint32_t id : ids) {
    if (!live(id)) return std::nullopt;
    const Id& i = ids_[id];
    if (i.slot == no_slot || i.fresh || i.on_gpu || i.passing) return std::nullopt;
    bytes += i.bytes;
    if (!i.grouped) continue;
    const TensorInfo& t = tensors_[id];
    if (groups_.count(t.group) != 0) return std::nullopt;  // the other node has announced a part of the group
    --missing.try_emplace(t.group, t.group_size).first->second;
  }
  if (std::any_of(missing.begin(), missing.end(), [](const auto& m) { return m.second != 0; })) return std::nullopt;
  if (bytes > options_.fusion_bytes || bytes * options_.ranks > options_.eager_work) return std::nullopt;
  offered_.assign(ids.begin(), ids.end());
  return batch_body(offered_, true);
}

void Coordinator::end_offer(bool taken) {
  const std::vector<std::uint32_t> ids = std::exchange(offered_, {});
  wants_end_of_offer_ = false;
  if (taken) {
    held_since_ = 0;
    none_to_evict_ = false;
    publish_batch(ids, true);
  }
  if (tune_after_offer_) tune(*std::exchange(tune_after_offer_, std::nullopt));
}

}  // namespace hvd::negotiate

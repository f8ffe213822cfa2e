// Offers between two nodes, at both ends; coordinator.h explains them.
#include <algorithm>

#include "negotiate/idset.h"
#include "negotiate/tree.h"

namespace hvd::negotiate {

bool TreeNode::only_own(std::uint32_t id) const {
  return live(id) && have_[0][id / 64] >> (id % 64) & 1 && parts_.only_own(id);
}

bool TreeNode::agreed(const std::vector<std::uint32_t>& ids) const {
  return std::all_of(ids.begin(), ids.end(), [this](std::uint32_t id) { return is_up(id) && parts_.complete(id); });
}

void TreeNode::take(const std::vector<std::uint32_t>& ids) {
  for (const std::uint32_t id : ids) up_[id / 64] &= ~(1ull << (id % 64));
}

bool TreeNode::sent(const std::vector<std::uint32_t>& ids) const {
  return std::all_of(ids.begin(), ids.end(), [this](std::uint32_t id) { return has_sent(id); });
}

void TreeNode::hurry(const std::vector<std::uint32_t>& ids) {
  urgent_ |= std::all_of(ids.begin(), ids.end(),
                         [this](std::uint32_t id) { return has_sent(id) || (is_up(id) && parts_.complete(id)); });
}

/// Drops the parts of the ids in the body of a `batch` command.
void TreeNode::forget_sent(std::string_view batch) {
  ByteReader r(batch);
  r.get<std::uint32_t>();
  r.get<std::uint32_t>();
  get_ids(r, ids_, [this](std::uint32_t id) {
    if (!has_sent(id)) return;
    sent_[id / 64] &= ~(1ull << (id % 64));
    parts_.drop(id);
  });
}

}  // namespace hvd::negotiate

// Small sums between two nodes in one trip; negotiate/coordinator.h explains offers.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "core/set/leader.h"
#include "negotiate/idset.h"

namespace hvd::core {
namespace {

using negotiate::ByteReader;
using negotiate::Command;

/// After each declined offer, twice as many announcements are not offered, up to this number.  Ranks that submit in
/// different orders would otherwise wait for answers again and again.
constexpr unsigned longest_pause = 255;

}  // namespace

// ---- on the coordinator's node

/// Offers the tensors that only this node has announced, as far as they fit one message.
void Leader::offer() {
  std::vector<std::uint32_t>& own = offers_.own;
  std::erase_if(own, [this](std::uint32_t id) { return !tree_->only_own(id); });
  std::sort(own.begin(), own.end());
  own.erase(std::unique(own.begin(), own.end()), own.end());
  std::vector<std::uint32_t> ids;
  std::size_t bytes = 0;
  for (const std::uint32_t id : own)
    if ((bytes += tree_->parts().each(id)) <= most_travelling_) ids.push_back(id);
  const std::optional<std::string> batch = coordinator_->offer(gather_.executed(), ids);
  if (!batch) return;
  tree_->take_declined();  // an answer to an offer that a rank's end has closed
  offers_.withdrawn = false;
  bytes = 0;
  for (const std::uint32_t id : ids) bytes += tree_->parts().each(id);
  negotiate::ByteWriter w;
  w.varint(offer_entry).varint(4 + batch->size() + bytes).text(*batch);
  down_.reserve(down_.size() + w.bytes().size() + bytes);
  down_ += w.bytes();
  for (const std::uint32_t id : ids) down_ += tree_->parts().parts(id).substr(0, tree_->parts().each(id));
}

/// Looks whether the open offer has ended.  Withdraws it if there is other work.  Returns false while it is open.
bool Leader::end_offer() {
  const std::vector<std::uint32_t>& ids = coordinator_->offered();
  // A message declines the offer before it announces ids, so an announcement in the same message is no answer.
  if (tree_->take_declined()) {
    if (!offers_.withdrawn) throw std::runtime_error("negotiation: an answer to no offer");
    offers_.missed = std::min(2 * offers_.missed + 1, longest_pause);
    offers_.pause = offers_.missed;
    offers_.withdrawn = false;
    coordinator_->end_offer(false);
    return true;
  }
  if (tree_->agreed(ids)) {
    tree_->take(ids);
    offers_.taken = true;
    offers_.missed = 0;
    offers_.withdrawn = false;
    coordinator_->end_offer(true);
    return true;
  }
  if (tree_->any_gone()) {  // all operations end with an error, and the other leader may have left
    coordinator_->end_offer(false);
    return true;
  }
  if (!offers_.withdrawn && (tree_->any_news() || coordinator_->wants_end_of_offer())) {
    tell(withdraw_entry, {});
    offers_.withdrawn = true;
  }
  return false;
}

// ---- on the other node

/// Takes an entry of @p message, which came down the tree.
void Leader::take_entry(std::uint64_t type, std::string_view body, const std::shared_ptr<const std::string>& message) {
  if (type == offer_entry) return hold_offer(body, message);
  if (type == withdraw_entry) {
    if (std::exchange(held_, std::nullopt)) tree_->decline();
    return;
  }
  if (type == result_entry) {
    ByteReader r(body);
    const std::uint32_t id = r.index(node_.geometry.words * 64);
    return sums_.put(id, r.take(r.get<std::uint32_t>()));
  }
  held_.reset();  // the coordinator's rank leaves: no other command follows an offer that is open
  publish(static_cast<std::uint32_t>(type), body);
}

void Leader::hold_offer(std::string_view body, const std::shared_ptr<const std::string>& message) {
  if (coordinator_ || world_.nodes.size() != 2 || held_) throw std::runtime_error("negotiation: an offer too many");
  HeldOffer offer;
  ByteReader r(body);
  offer.message = message;
  offer.batch = r.text();
  offer.parts = r.rest();
  ByteReader batch(offer.batch);
  if (batch.get<std::uint32_t>() != negotiate::batch_eager) throw std::runtime_error("negotiation: an offer of slices");
  batch.get<std::uint32_t>();
  negotiate::get_ids(batch, node_.geometry.words * 64, [&](std::uint32_t id) { offer.ids.push_back(id); });
  held_ = std::move(offer);
  take_offer();
}

/// Runs the batch of the held offer, if this node has announced its tensors.
void Leader::take_offer() {
  if (!tree_->sent(held_->ids)) return;
  const HeldOffer offer = *std::exchange(held_, std::nullopt);
  ByteReader theirs(offer.parts);
  for (const std::uint32_t id : offer.ids) {
    const std::string_view own = tree_->parts().parts(id).substr(0, tree_->parts().each(id));
    const std::string_view by_node[] = {theirs.take(own.size()), own};
    sums_.whole(id, by_node);
  }
  publish(static_cast<std::uint32_t>(Command::batch), offer.batch);
}

}  // namespace hvd::core

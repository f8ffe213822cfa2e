#include "launcher/control/payload_delivery.h"

#include <algorithm>

#include "wire/messages/message.h"

namespace hvd::launcher {

bool PayloadDelivery::complete(wire::RankManifest& m, bool local) const {
  if (m.payload.kind != wire::PayloadKind::pickle) return true;
  const auto shared = host_path_.find(m.host);
  if (local)
    m.payload.path = local_path_;
  else if (m.rank >= first_with_own_copy_)
    m.payload.deliver = true;
  else if (shared != host_path_.end())
    m.payload.path = shared->second;
  else if (m.local_rank == 0)
    m.payload.deliver = true;
  else
    return false;
  return true;
}

std::optional<wire::Frame> PayloadDelivery::next_piece(int rank) {
  if (!on_their_way_.contains(rank) && on_their_way_.size() >= most_on_their_way) return std::nullopt;
  on_their_way_.insert(rank);
  const std::size_t sent = sent_bytes_.at(rank);
  return wire::Frame{static_cast<std::uint16_t>(wire::Type::payload),
                     bytes_.substr(sent, std::min(bytes_.size() - sent, wire::max_frame_bytes))};
}

void PayloadDelivery::has_sent(int rank, const wire::Frame& piece) {
  if (piece.body.empty())
    sent_bytes_.erase(rank);
  else
    sent_bytes_.at(rank) += piece.body.size();
}

void PayloadDelivery::arrived(int rank, const std::string& host, const std::string& path) {
  host_path_[host] = path;
  on_their_way_.erase(rank);
}

void PayloadDelivery::forget(int rank) {
  sent_bytes_.erase(rank);
  on_their_way_.erase(rank);
}

std::vector<int> PayloadDelivery::waiting() const {
  std::vector<int> ranks;
  for (const auto& [rank, sent] : sent_bytes_)
    if (sent == 0) ranks.push_back(rank);
  return ranks;
}

}  // namespace hvd::launcher

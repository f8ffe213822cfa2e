#include "transport/tcp/carry/part_sender.h"

#include <algorithm>

namespace hvd::transport::tcp {

void PartSender::begin(int peer, const FrameHeader& header, std::size_t bytes, std::uint64_t ticket, const char* data) {
  messages_.push_back(
      {peer, header, bytes, ticket, data, std::vector<std::int16_t>(parts_of(bytes), std::int16_t{nowhere}), 0});
}

std::optional<OutFrame> PartSender::next(int peer, int lane) {
  for (Going& m : messages_) {
    if (m.peer != peer) continue;
    while (m.first < m.lanes.size() && m.lanes[m.first] != nowhere) ++m.first;
    if (m.first == m.lanes.size()) continue;
    m.lanes[m.first] = static_cast<std::int16_t>(lane);
    const std::size_t at = m.first++ * part_bytes;
    OutFrame frame;
    frame.header = m.header;
    frame.header.kind = FrameKind::piece;
    frame.header.at = at;
    frame.header.bytes = static_cast<std::uint32_t>(std::min(part_bytes, m.bytes - at));
    frame.data = m.data + at;
    frame.ticket = m.ticket;
    return frame;
  }
  return std::nullopt;
}

void PartSender::lane_ended(int peer, int lane) {
  for (Going& m : messages_) {
    if (m.peer != peer) continue;
    std::replace(m.lanes.begin(), m.lanes.end(), static_cast<std::int16_t>(lane), std::int16_t{nowhere});
    m.first = 0;
  }
}

void PartSender::end(std::uint64_t ticket) {
  std::erase_if(messages_, [&](const Going& m) { return m.ticket == ticket; });
}

void PartSender::peer_lost(int peer) {
  std::erase_if(messages_, [&](const Going& m) { return m.peer == peer; });
}

std::vector<int> PartSender::peers() const {
  std::vector<int> found;
  for (const Going& m : messages_)
    if (std::find(found.begin(), found.end(), m.peer) == found.end()) found.push_back(m.peer);
  return found;
}

}  // namespace hvd::transport::tcp

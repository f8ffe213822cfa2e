/// @file part_sender.h — divides large messages into parts for a peer that several network interfaces reach.
///
/// Each lane with room sends the next part.  So the rates of the interfaces add up, and a slow interface sends fewer
/// parts.  The sender keeps a message until the receiver has the complete message.  When a lane ends, other lanes send
/// its parts again.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "transport/tcp/stream/lane.h"

namespace hvd::transport::tcp {

class PartSender {
 public:
  static constexpr std::size_t part_bytes = 256 << 10;
  static std::size_t parts_of(std::size_t bytes) { return (bytes + part_bytes - 1) / part_bytes; }

  /// Adds a message of @p bytes bytes.  @p header: stream, tag and number of the message.  @p data must stay valid
  /// until end() or peer_lost().
  void begin(int peer, const FrameHeader& header, std::size_t bytes, std::uint64_t ticket, const char* data);
  /// Returns the next part, and records that @p lane sends the part.  nullopt: no part to the peer is left.
  std::optional<OutFrame> next(int peer, int lane);
  /// Makes next() return all parts again that @p lane has sent.
  void lane_ended(int peer, int lane);
  /// Removes the message, because the message has arrived or was abandoned.
  void end(std::uint64_t ticket);
  /// Removes all messages to the peer.
  void peer_lost(int peer);
  bool none() const { return messages_.empty(); }
  /// Peers with a message that has not arrived.
  std::vector<int> peers() const;

 private:
  static constexpr int nowhere = -1;
  struct Going {
    int peer = 0;
    FrameHeader header;
    std::size_t bytes = 0;
    std::uint64_t ticket = 0;
    const char* data = nullptr;
    std::vector<std::int16_t> lanes;  ///< [parts] the lane that has sent the part; nowhere: none
    std::size_t first = 0;            ///< index of a part; all earlier parts have been sent
  };
  std::vector<Going> messages_;  ///< in the order of begin()
};

}  // namespace hvd::transport::tcp

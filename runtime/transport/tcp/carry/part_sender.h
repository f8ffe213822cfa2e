/// @file part_sender.h — sends large messages in parts to a host that several network interfaces reach.
///
/// Each lane with room takes the next part.  So the rates of the interfaces add up, and a slow one takes fewer parts. A
/// message stays here until the receiver has all of it: when a lane ends, its parts go again over other lanes.
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

  /// @p header  of the whole message but for its length, with its ticket; @p data is read until end().
  void begin(int peer, const FrameHeader& header, std::size_t bytes, std::uint64_t ticket, const char* data);
  /// The next part, which goes over that lane; nullopt: all have gone.
  std::optional<OutFrame> next(int peer, int lane);
  /// Its parts go again.
  void lane_ended(int peer, int lane);
  /// The message has arrived, or was given up.
  void end(std::uint64_t ticket);
  void peer_lost(int peer);
  bool none() const { return messages_.empty(); }
  /// Peers with a message that is not complete.
  std::vector<int> peers() const;

 private:
  static constexpr int nowhere = -1;
  struct Going {
    int peer = 0;
    FrameHeader header;
    std::size_t bytes = 0;
    std::uint64_t ticket = 0;
    const char* data = nullptr;
    std::vector<std::int16_t> lanes;  ///< by part
    std::size_t first = 0;            ///< parts before it have gone
  };
  std::vector<Going> messages_;  ///< in sequence
};

}  // namespace hvd::transport::tcp

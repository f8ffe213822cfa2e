/// @file message_channel.h — the channels of messages between ranks, and the limits on kept messages.
///
/// Both ends use the same limits.  A sender waits before it exceeds a limit.  A receiver refuses a message beyond a
/// limit.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "transport/tcp/stream/lane.h"
#include "transport/transport.h"

namespace hvd::transport::tcp {

/// Identifies a sequence of messages between this rank and a peer.  Messages of different channels never mix.
struct Channel {
  int peer = 0;
  int stream = 0;
  Tag tag = Tag::data;
  auto operator<=>(const Channel&) const = default;
};

/// True if the header has a valid tag and a possible stream number.
inline bool is_channel(const FrameHeader& h) {
  return h.tag >= static_cast<std::uint8_t>(Tag::exchange) && h.tag <= static_cast<std::uint8_t>(Tag::second) &&
         h.stream <= 0x7fffffff;
}

/// True: messages with this tag are taken by Transport::poll.  False: by Transport::irecv.
inline bool is_control(Tag tag) { return tag != Tag::data && tag != Tag::second; }

/// A larger message that is not a control message waits for the receiver's FrameKind::room.
inline constexpr std::size_t eager_bytes = 32 << 10;

/// Maximum size of one control message.  The addresses of 27 600 ranks need 30 MiB.  If one node announces
/// 500 000 new tensor names at once, they need 150 MiB.
inline constexpr std::size_t most_control_bytes = std::size_t{256} << 20;

/// The sender of a channel waits while the receiver keeps more untaken bytes than this limit.  So a receiver keeps at
/// most this limit plus one message for each channel.  A link of 100 Gbit/s carries 3.75 MB in 300 us, which is below
/// the limit.  So a receiver that keeps up never makes its sender wait.
inline constexpr std::uint64_t most_untaken_bytes = 4 << 20;
/// The receiver sends a credit frame after each credit_bytes taken bytes.  The number must be less than
/// most_untaken_bytes.  Otherwise sender and receiver would wait for each other.
inline constexpr std::uint64_t credit_bytes = 2 << 20;
/// The size of a message for these limits.  An empty message takes memory too.
inline constexpr std::uint64_t counted_bytes(std::size_t bytes) { return bytes + 64; }

/// Maximum number of receives of a channel that are announced to the sender and have no message yet.  At 32 KiB or more
/// for each message, at least 32 MiB can be in transit.
inline constexpr std::size_t most_rooms = 1024;
/// Maximum number of ready receives that a sender stores for messages that it has not sent yet.  The limit is larger
/// than most_rooms, because the receiver no longer counts receives that it has abandoned.
inline constexpr std::size_t most_known_rooms = 4 * most_rooms;

inline Error broken_frame() { return Error(Code::internal, "TCP", "a frame came that no rank of this version sends"); }
inline Error wrong_length() { return Error(Code::internal, "TCP", "a message has another length than its receive"); }

}  // namespace hvd::transport::tcp

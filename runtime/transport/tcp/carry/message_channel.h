/// @file message_channel.h — the names of messages between ranks, and how many of them a receiver keeps.
///
/// Both ends know the limits: a sender of this version waits where the receiver would refuse.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "transport/tcp/stream/lane.h"
#include "transport/transport.h"

namespace hvd::transport::tcp {

/// Names the messages that must not mix.
struct Channel {
  int peer = 0;
  int stream = 0;
  Tag tag = Tag::data;
  auto operator<=>(const Channel&) const = default;
};

/// The tag is one, and the stream can be.
inline bool is_channel(const FrameHeader& h) {
  return h.tag >= static_cast<std::uint8_t>(Tag::exchange) && h.tag <= static_cast<std::uint8_t>(Tag::second) &&
         h.stream <= 0x7fffffff;
}

/// Messages of these tags wait for Transport::poll; those of the others for a receive.
inline bool is_control(Tag tag) { return tag != Tag::data && tag != Tag::second; }

/// A larger message to a receive is sent once the receiver has said that its memory is there.
inline constexpr std::size_t eager_bytes = 32 << 10;

/// Of one control message.  The largest that occur: the addresses of 27 600 ranks (30 MiB), and 500 000 new names that
/// one node announces at once (150 MiB).
inline constexpr std::size_t most_control_bytes = std::size_t{256} << 20;

/// The sender of a channel waits while the receiver keeps more untaken bytes of it than this.  A receiver thus keeps at
/// most this and one message.  A link of 100 Gbit/s carries less in 300 us, so a receiver that keeps up never makes
/// its sender wait.
inline constexpr std::uint64_t most_untaken_bytes = 4 << 20;
/// The receiver sends a credit frame each time these many bytes were taken.  The number is less than
/// most_untaken_bytes, or sender and receiver would wait for each other.
inline constexpr std::uint64_t credit_bytes = 2 << 20;
/// The bytes that a message counts for.  An empty message takes memory too.
inline constexpr std::uint64_t counted_bytes(std::size_t bytes) { return bytes + 64; }

/// Receives for large messages that a receiver says are ready, and whose messages are still to come.  At 32 KiB or more
/// each that is 32 MiB on their way.
inline constexpr std::size_t most_rooms = 1024;
/// The same as a sender keeps it for messages that it has not sent yet.  More: a receive that was given up counts no
/// longer at the receiver.
inline constexpr std::size_t most_known_rooms = 4 * most_rooms;

inline Error broken_frame() { return Error(Code::internal, "TCP", "a frame came that no rank of this version sends"); }
inline Error wrong_length() { return Error(Code::internal, "TCP", "a message has another length than its receive"); }

}  // namespace hvd::transport::tcp

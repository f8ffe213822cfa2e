/// @file frame.h — the frames of a lane: a header of fixed size and payload bytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace hvd::transport::tcp {

enum class FrameKind : std::uint8_t {
  message = 1,  ///< a whole message
  room = 2,     ///< the receive for a large message is posted: the sender may send the message.  No payload
  piece = 3,    ///< a large message or a part of a large message
  done = 5,     ///< the receiver has all parts of a large message sent over several interfaces.  No payload
  bye = 4,      ///< the sender leaves in order: the last frame of this lane.  `number`: lanes that get a bye
  credit = 6,   ///< the receiver has taken messages of `at` counted bytes (message_channel.h).  No payload
};

/// The header on the network, in little-endian byte order.
struct FrameHeader {
  FrameKind kind = FrameKind::message;
  std::uint8_t tag = 0;
  std::uint16_t unused = 0;
  std::uint32_t stream = 0;
  std::uint32_t number = 0;  ///< of the message in its (sender, stream, tag), from 0; wraps
  std::uint32_t bytes = 0;   ///< length of the payload that follows
  std::uint64_t at = 0;      ///< piece: offset in the message; credit: counted bytes
};
static_assert(sizeof(FrameHeader) == 24);

/// A frame that has not been sent completely.
struct OutFrame {
  FrameHeader header;
  const char* data = nullptr;
  std::uint64_t ticket = 0;                  ///< the send that owns the payload; 0: none
  std::shared_ptr<const std::string> owned;  ///< owns the payload; null: the sender owns the payload
  std::size_t left = 0;                      ///< unsent bytes of header and payload

  std::size_t whole() const { return sizeof header + header.bytes; }
  /// Makes the frame independent of the sender's memory.
  void own() {
    if (owned || header.bytes == 0) return;
    owned = std::make_shared<const std::string>(data, header.bytes);
    data = owned->data();
  }
};

}  // namespace hvd::transport::tcp

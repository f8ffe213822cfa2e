/// @file frame_header.h — the eight bytes before each message on our sockets.
///
/// Layout: u32 length of the body, u32 tag; little endian.  Each protocol defines its tags, for example a type or a
/// rank.  This header has no .cc file and throws nothing, because libhvd and the Python host include it.
#pragma once
#include <cstddef>
#include <cstdint>

namespace hvd {

struct SocketFrameHeader {
  static constexpr std::size_t bytes = 8;

  std::uint32_t body_bytes = 0;
  std::uint32_t tag = 0;

  /// Writes `bytes` bytes.
  void put(char* to) const noexcept {
    for (int i = 0; i < 4; ++i) {
      to[i] = static_cast<char>(body_bytes >> (8 * i) & 0xff);
      to[4 + i] = static_cast<char>(tag >> (8 * i) & 0xff);
    }
  }
  /// Reads `bytes` bytes.
  static SocketFrameHeader at(const char* from) noexcept {
    SocketFrameHeader h;
    for (int i = 0; i < 4; ++i) {
      h.body_bytes |= static_cast<std::uint32_t>(static_cast<unsigned char>(from[i])) << (8 * i);
      h.tag |= static_cast<std::uint32_t>(static_cast<unsigned char>(from[4 + i])) << (8 * i);
    }
    return h;
  }
};

}  // namespace hvd

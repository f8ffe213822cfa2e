/// @file link.h — frames between a guard and its rank process.
///
/// Header only, without ZeroMQ, JSON and exceptions, because libhvd and the Python host include it too.  The link is a
/// socket pair of SOCK_SEQPACKET.  One send() is one packet, and no other thread or forked child can split it.  A
/// packet holds whole frames.  Packets that were sent survive the SIGKILL of the sender.
///
/// A frame has a header (base/network/frame_header.h), then a body.  The header's tag is the Type (message.h).
#pragma once
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/network/frame_header.h"
#include "message.h"

namespace hvd::wire::link {

inline constexpr std::size_t header_bytes = SocketFrameHeader::bytes;
inline constexpr std::size_t max_body_bytes = 64u << 10;  ///< longer things travel in pieces
inline constexpr std::size_t max_packet_bytes = header_bytes + max_body_bytes;
inline constexpr const char* fd_variable = "HVD_LINK_FD";

/// One frame as read; body points into the buffer that was parsed.
struct View {
  Type type;
  const char* body;
  std::size_t bytes;
};

/// Sends one frame in one packet.  0, or an errno: EMSGSIZE (body too long), EPIPE (guard gone),
/// EAGAIN (only with @p wait false).  With @p wait it blocks while the guard is behind: not for hot threads.
inline int send(int fd, Type type, const void* body, std::size_t bytes, bool wait = true) noexcept {
  if (bytes > max_body_bytes) return EMSGSIZE;
  char header[header_bytes];
  SocketFrameHeader{static_cast<std::uint32_t>(bytes), static_cast<std::uint32_t>(type)}.put(header);
  iovec parts[2] = {{header, header_bytes}, {const_cast<void*>(body), bytes}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = bytes ? 2 : 1;
  for (;;) {
    if (::sendmsg(fd, &message, MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT)) >= 0) return 0;
    if (errno != EINTR) return errno;
  }
}

/// Takes the frame at @p offset of a packet.  False at the end of the packet or at garbage
/// (*offset == bytes tells the two apart).
inline bool next(const char* packet, std::size_t bytes, std::size_t* offset, View* out) noexcept {
  if (bytes - *offset < header_bytes) return false;
  const SocketFrameHeader h = SocketFrameHeader::at(packet + *offset);
  if (h.tag > UINT16_MAX || h.body_bytes > max_body_bytes || h.body_bytes > bytes - *offset - header_bytes)
    return false;
  *out = {static_cast<Type>(h.tag), packet + *offset + header_bytes, h.body_bytes};
  *offset += header_bytes + h.body_bytes;
  return true;
}

}  // namespace hvd::wire::link

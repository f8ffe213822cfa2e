/// @file local_socket.h — one end of a unix socket that carries frames, for local_channel.cc.
///
/// Framed by base/network/framed_socket.h; the tag is the frame's type.  Only linger() waits.
#pragma once
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "base/file.h"
#include "base/network/framed_socket.h"
#include "channel.h"

namespace hvd::wire {

/// Both directions of one connection.  While the other end is there, an epoll descriptor watches the socket.  The
/// descriptor wakes when bytes can be read.  While a frame waits, it also wakes when there is room to write.
class LocalSocket {
 public:
  /// @p id  the data of this socket's epoll events
  LocalSocket(Fd socket, int epoll, std::uint64_t id);
  LocalSocket(const LocalSocket&) = delete;
  LocalSocket& operator=(const LocalSocket&) = delete;

  /// False while an earlier frame waits for the kernel's buffer: this frame was not taken.
  bool send(const Frame& frame);
  /// Sends the key: bytes before all frames.
  void send_key(const std::string& key);
  /// Writes as much as the kernel takes.
  void flush();
  /// Reads once; take() returns the frames.
  void read();
  /// The first @p bytes that were read; nothing while fewer have come.
  std::optional<std::string> take_key(std::size_t bytes) { return in_.take_bytes(bytes); }
  /// The next whole frame, or nothing.
  std::optional<Frame> take();
  /// True if take() would return a frame, or end the connection because of a malformed one.
  bool has_frame() const { return in_.has_frame() || in_.is_malformed(); }
  /// Waits until all is written or the other end is gone, at most until @p limit.
  void linger(std::chrono::steady_clock::time_point limit);

  /// True if no more frames will arrive: the other end is closed, or has sent a malformed frame.
  bool ended() const { return ended_; }

 private:
  void watch(std::uint32_t events);
  void end();

  Fd socket_;
  int epoll_;
  std::uint64_t id_;
  std::uint32_t watched_ = 0;
  FrameInput in_{max_frame_bytes, UINT16_MAX};
  FrameOutput out_;
  bool ended_ = false;
};

}  // namespace hvd::wire

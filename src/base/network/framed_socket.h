/// @file framed_socket.h — frames over a stream socket.  A frame is a header (frame_header.h) and a body.
///
/// FrameInput and FrameOutput never wait.  send_frame() and receive_frame() wait until a deadline.
#pragma once
#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/network/frame_header.h"

namespace hvd {

struct TaggedFrame {
  std::uint32_t tag = 0;
  std::string body;
};

/// The bytes of a frame: its header, then its body.
std::string framed(std::uint32_t tag, std::string_view body);

/// Reads bytes from one socket and splits them into frames.
class FrameInput {
 public:
  enum class Read { some, nothing, ended };

  /// A frame with a longer body or a larger tag is malformed: see is_malformed().
  explicit FrameInput(std::size_t most_body_bytes, std::uint32_t largest_tag = UINT32_MAX)
      : most_body_bytes_(most_body_bytes), largest_tag_(largest_tag) {}

  /// Calls recv(2) once, for at most 64 KiB.  `nothing`: no bytes are waiting; `ended`: no more bytes will come.
  Read read(int socket);
  /// Takes the next @p bytes bytes, which precede a frame.  Nothing if fewer bytes have come.
  std::optional<std::string> take_bytes(std::size_t bytes);
  /// The next whole frame, or nothing.
  std::optional<TaggedFrame> take();
  bool has_frame() const;
  /// True when the next frame exceeds a limit of the constructor.  The caller then stops reading.
  bool is_malformed() const;
  /// Forgets all bytes that were read.
  void drop() { in_.clear(), taken_ = 0; }

 private:
  std::optional<SocketFrameHeader> header() const;

  std::size_t most_body_bytes_;
  std::uint32_t largest_tag_;
  std::string in_;
  std::size_t taken_ = 0;
};

/// Queues frames for one socket.
class FrameOutput {
 public:
  enum class Flush { all_sent, blocked, broken };

  /// @param body  shared, because one text may go to many sockets
  void add(std::uint32_t tag, std::shared_ptr<const std::string> body);
  void add(std::uint32_t tag, std::string_view body) { add(tag, std::make_shared<const std::string>(body)); }
  /// Adds bytes outside a frame, such as a key before the first frame.
  void add_bytes(std::string_view bytes);
  bool is_empty() const { return pieces_.empty(); }
  /// Forgets all waiting bytes.
  void drop() { pieces_.clear(), sent_ = 0; }
  /// Sends as many bytes as the socket takes.  `broken`: the other end is gone, and the waiting bytes were dropped.
  Flush flush(int socket);

 private:
  std::deque<std::shared_ptr<const std::string>> pieces_;
  std::size_t sent_ = 0;  ///< bytes of the first piece that were sent
};

using Deadline = std::chrono::steady_clock::time_point;

/// Sends one frame.  False when the other end is gone, or reads too little until @p deadline.  A part of the frame may
/// then be sent, and the socket is useless.
bool send_frame(int socket, std::uint32_t tag, std::string_view body, Deadline deadline);

struct ReceivedFrame {
  bool ended = false;  ///< the other end is gone, announced a body over the limit, or stopped inside a frame
  std::optional<TaggedFrame> frame{};  ///< nothing if the deadline has passed, or `ended`
};
/// Waits until @p deadline for the first byte of a frame, then at most a minute for its other bytes.  Reads no bytes
/// after the frame, because other code may read the socket next.
ReceivedFrame receive_frame(int socket, std::size_t most_body_bytes, Deadline deadline);

}  // namespace hvd

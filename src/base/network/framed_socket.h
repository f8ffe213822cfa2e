/// @file framed_socket.h — messages of known length over a stream socket: a header (frame_header.h), then the body.
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

/// The bytes that were read from one socket, cut into frames.
class FrameInput {
 public:
  enum class Read { some, nothing, ended };

  /// A frame with a longer body or a larger tag is malformed: see is_malformed().
  explicit FrameInput(std::size_t most_body_bytes, std::uint32_t largest_tag = UINT32_MAX)
      : most_body_bytes_(most_body_bytes), largest_tag_(largest_tag) {}

  /// One recv(2) of at most 64 KiB.  `nothing`: no bytes wait; `ended`: none will come any more.
  Read read(int socket);
  /// Takes the next @p bytes bytes, which lie before a frame.  Nothing: fewer have come.
  std::optional<std::string> take_bytes(std::size_t bytes);
  /// The next whole frame, or nothing.
  std::optional<TaggedFrame> take();
  bool has_frame() const;
  /// True when the next frame breaks the limits: the caller cannot read on.
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

/// Frames on their way into one socket.
class FrameOutput {
 public:
  enum class Flush { all_sent, blocked, broken };

  /// @p body  shared: one text may go to many sockets
  void add(std::uint32_t tag, std::shared_ptr<const std::string> body);
  void add(std::uint32_t tag, std::string_view body) { add(tag, std::make_shared<const std::string>(body)); }
  /// Adds bytes that are no frame, such as a key before the first one.
  void add_bytes(std::string_view bytes);
  bool is_empty() const { return pieces_.empty(); }
  /// Forgets all waiting bytes.
  void drop() { pieces_.clear(), sent_ = 0; }
  /// Sends as much as the socket takes.  `broken`: the other end is gone, and waiting bytes are dropped.
  Flush flush(int socket);

 private:
  std::deque<std::shared_ptr<const std::string>> pieces_;
  std::size_t sent_ = 0;  ///< of the first piece
};

using Deadline = std::chrono::steady_clock::time_point;

/// False when the other end is gone, or does not read until @p deadline: the socket is useless then.
bool send_frame(int socket, std::uint32_t tag, std::string_view body, Deadline deadline);

struct ReceivedFrame {
  bool ended = false;  ///< the other end is gone, has sent a longer body than allowed, or stopped amid a frame
  std::optional<TaggedFrame> frame{};  ///< nothing: the deadline has passed, or `ended`
};
/// Waits for the first byte of a frame until @p deadline, then for the rest at most a minute.  Reads no byte beyond the
/// frame, so others may go on with the socket.
ReceivedFrame receive_frame(int socket, std::size_t most_body_bytes, Deadline deadline);

}  // namespace hvd

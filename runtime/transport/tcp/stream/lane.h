/// @file lane.h — one connection between two ranks, after its handshake.
///
/// A lane carries frames.  A frame is a header of fixed size and payload bytes, which the lane does not interpret.  The
/// lane sends directly from the sender's memory.  It receives large frames directly into their destination.  No call
/// blocks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "base/file.h"
#include "transport/tcp/stream/byte_stream.h"
#include "transport/tcp/stream/socket_calls.h"

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
  std::uint64_t ticket = 0;            ///< the send that owns the payload; 0: none
  std::unique_ptr<std::string> owned;  ///< owns a copy of the payload; null: the sender owns the payload
  std::size_t left = 0;                ///< unsent bytes of header and payload
};

class Lane;

/// Receives the frame events of lanes.
class FrameHandler {
 public:
  virtual ~FrameHandler() = default;
  /// A frame begins.  Returns the memory for its payload; nullptr: the lane drops the payload.  Throws Error{internal}
  /// if no peer of this version sends such a frame.
  virtual unsigned char* place(Lane& lane, const FrameHeader& header) = 0;
  /// All bytes of the frame have arrived.
  virtual void arrived(Lane& lane, const FrameHeader& header) = 0;
  /// @p lane has sent all bytes of @p frame, and no longer reads its memory.
  virtual void left(Lane& lane, const OutFrame& frame) = 0;
};

/// Size: the frame under way in each direction, and the queue between them.
class Lane {
 public:
  Lane(SocketCalls& calls, FrameHandler& handler, Fd fd, std::unique_ptr<ByteStream> stream, int peer, int number)
      : calls_(calls),
        handler_(handler),
        fd_(std::move(fd)),
        stream_(std::move(stream)),
        peer_(peer),
        number_(number) {}

  int fd() const { return fd_.get(); }
  int peer() const { return peer_; }
  int number() const { return number_; }

  void add(OutFrame frame);
  /// Sends bytes until the kernel accepts no more.  Returns 0, or the errno with which the connection ended.
  int send();
  /// Receives available bytes.  If bytes remain, epoll reports them.  Returns 0, the errno with which the connection
  /// ended, or -1 if the other end closed the connection.
  int receive();
  /// True if receive() has work that epoll does not report.
  bool pending() const { return stream_->pending(); }
  /// True if no frame waits.  Encrypted bytes may still wait in the stream.
  bool nothing_waits() const { return out_.empty(); }
  bool idle() const { return out_.empty() && !stream_->holds(); }
  /// Milliseconds since the last acknowledgement from the other end's kernel; 0 for a unix socket.
  unsigned ms_since_heard() const;
  /// Stops reading the caller's memory of @p ticket.  Drops those of its frames that have not begun.  Copies the
  /// payload of a frame that has begun.  @return the number of dropped frames
  std::size_t forget(std::uint64_t ticket);
  /// Drops all further bytes of the frame that is arriving.
  void drop_arriving() { target_ = nullptr; }
  const FrameHeader* arriving() const { return in_frame_ ? &in_ : nullptr; }

  bool is_local = false;     ///< the connection is a unix socket
  bool watches_out = false;  ///< epoll reports when the kernel accepts more bytes
  bool said_bye = false;     ///< the other end has sent FrameKind::bye

 private:
  void take(const unsigned char* data, std::size_t bytes);
  void begin_frame();
  void end_frame();
  int receive_some();
  void announce_from(std::size_t bytes);

  SocketCalls& calls_;
  FrameHandler& handler_;
  Fd fd_;
  std::unique_ptr<ByteStream> stream_;
  const int peer_, number_;
  std::deque<OutFrame> out_;

  FrameHeader in_;
  std::size_t header_got_ = 0;
  std::size_t announced_from_ = 1;  ///< bytes that must arrive before epoll reports them
  bool in_frame_ = false;
  std::size_t in_left_ = 0;  ///< payload bytes of the frame that have not arrived
  unsigned char* target_ = nullptr;
  unsigned char small_[16 << 10];
};

}  // namespace hvd::transport::tcp

/// @file lane.h — one connection between two ranks, once both have proved the job's key.
///
/// Carries frames: a header of fixed size and bytes that are neither copied nor interpreted here.  What leaves is read
/// straight from the sender's memory, what arrives is written straight to where it belongs.  Nothing blocks.
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
  room = 2,     ///< the receive for a large message has been posted: it may come.  No bytes
  piece = 3,    ///< a large message, or a part of one
  done = 5,     ///< all parts of a large message have come by several interfaces.  No bytes
  bye = 4,      ///< the sender leaves in order: nothing follows here.  Its number: the lanes that get this frame
  credit = 6,   ///< the receiver has taken messages that count `at` bytes (message_channel.h).  No bytes
};

/// As it travels, little endian.
struct FrameHeader {
  FrameKind kind = FrameKind::message;
  std::uint8_t tag = 0;
  std::uint16_t unused = 0;
  std::uint32_t stream = 0;
  std::uint32_t number = 0;  ///< of the message: those of one (sender, stream, tag) are numbered from 0, and wrap
  std::uint32_t bytes = 0;   ///< that follow
  std::uint64_t at = 0;      ///< of a piece: where in the message
};
static_assert(sizeof(FrameHeader) == 24);

/// A frame on its way out.
struct OutFrame {
  FrameHeader header;
  const char* data = nullptr;
  std::uint64_t ticket = 0;            ///< the owner of the bytes; 0: none
  std::unique_ptr<std::string> owned;  ///< where nobody else keeps the bytes
  std::size_t left = 0;                ///< of header and bytes
};

class Lane;

/// What becomes of frames.
class FrameHandler {
 public:
  virtual ~FrameHandler() = default;
  /// A frame begins: where its bytes go; nullptr: nowhere, they are dropped.  Throws Error{internal} where no peer of
  /// this version sends such a frame.
  virtual unsigned char* place(Lane& lane, const FrameHeader& header) = 0;
  /// All its bytes are there.
  virtual void arrived(Lane& lane, const FrameHeader& header) = 0;
  /// A frame has left that lane, and its memory is free.
  virtual void left(Lane& lane, const OutFrame& frame) = 0;
};

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
  /// Sends what the kernel takes.  0, or the errno with which the connection has ended.
  int send();
  /// Receives what is there; what is then left epoll tells of.  0, or the errno with which the connection has ended;
  /// -1: the other end has closed it.
  int receive();
  /// Bytes have come of which epoll does not tell.
  bool pending() const { return stream_->pending(); }
  /// Of frames that have not left.
  bool nothing_waits() const { return out_.empty(); }
  bool idle() const { return out_.empty() && !stream_->holds(); }
  /// Since something came from the other end's kernel; 0 for a unix socket.
  unsigned ms_since_heard() const;
  /// Stops reading the caller's memory of @p ticket.  Drops its frames that have not begun, and copies the rest of a
  /// frame that has begun.  @return the number of dropped frames
  std::size_t forget(std::uint64_t ticket);
  /// Bytes of the frame that is arriving go nowhere from now on.
  void drop_arriving() { target_ = nullptr; }
  const FrameHeader* arriving() const { return in_frame_ ? &in_ : nullptr; }

  bool is_local = false;     ///< a unix socket
  bool watches_out = false;  ///< epoll tells when there is room to send
  bool said_bye = false;     ///< the other end has

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
  std::size_t announced_from_ = 1;  ///< bytes that must have come before epoll tells
  bool in_frame_ = false;
  std::size_t in_left_ = 0;  ///< bytes of the frame
  unsigned char* target_ = nullptr;
  unsigned char small_[16 << 10];
};

}  // namespace hvd::transport::tcp

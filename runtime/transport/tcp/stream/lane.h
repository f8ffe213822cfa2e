/// @file lane.h — one connection between two ranks, after its handshake.
///
/// A lane may move to another connection.  Both ends then first send the number of bytes that they have received over
/// all connections of the lane.  Each end continues with the first byte that the other end lacks.
///
/// A lane carries frames.  A frame is a header of fixed size and payload bytes, which the lane does not interpret.  The
/// lane sends directly from the sender's memory.  The lane receives large frames directly into their destination.  No
/// call blocks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "base/file.h"
#include "transport/tcp/stream/byte_stream.h"
#include "transport/tcp/stream/frame.h"
#include "transport/tcp/stream/kept_frames.h"
#include "transport/tcp/stream/socket_calls.h"

namespace hvd::transport::tcp {

class Lane;

/// Receives the frame events of lanes.
class FrameHandler {
 public:
  virtual ~FrameHandler() = default;
  /// Called when a frame begins.  Returns the memory for its payload; nullptr: the lane drops the payload.  Throws
  /// Error{internal} if no peer of this version sends such a frame.
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
  /// True if send() has nothing to do until receive() has had more bytes, or add() another frame.
  bool idle() const { return count_left_ == 0 && (awaits_count_ || out_.empty()) && stream_->waiting() == 0; }
  /// Milliseconds since the last acknowledgement from the other end's kernel; 0 for a unix socket.
  unsigned ms_since_heard() const;
  /// Stops reading the caller's memory of @p ticket.  Drops those of its frames that have not begun.  Copies the
  /// payload of a frame that has begun.  @return the number of dropped frames
  std::size_t forget(std::uint64_t ticket);
  /// Drops all further bytes of the frame that is arriving.
  void drop_arriving() { target_ = nullptr; }
  const FrameHeader* arriving() const { return in_frame_ ? &in_ : nullptr; }
  /// Continues over another connection.  `keeps` must have been true from the first frame.  The caller has received
  /// all bytes that the former connection had.
  void resume(Fd fd, std::unique_ptr<ByteStream> stream);
  /// Bytes of frames received over all connections.
  std::uint64_t received() const { return received_; }

  bool is_local = false;     ///< the connection is a unix socket
  bool watches_out = false;  ///< epoll reports when the kernel accepts more bytes
  bool said_bye = false;     ///< the other end has sent FrameKind::bye
  bool keeps = false;        ///< keeps sent frames that the other end may lack, for resume()
  bool moves = false;        ///< the other end may already use another connection: no sent frame is dropped
  bool interrupted = false;  ///< the connection has ended, and the lane waits for another one

 private:
  void take(const unsigned char* data, std::size_t bytes);
  void begin_frame();
  void end_frame();
  int receive_some();
  void announce_from(std::size_t bytes);
  void drop_acknowledged();
  int send_count();
  std::size_t take_count(const unsigned char* data, std::size_t bytes);

  SocketCalls& calls_;
  FrameHandler& handler_;
  Fd fd_;
  std::unique_ptr<ByteStream> stream_;
  const int peer_, number_;
  std::deque<OutFrame> out_;
  KeptFrames kept_;
  std::uint64_t sent_ = 0, received_ = 0;  ///< bytes of frames over all connections
  bool awaits_count_ = false;              ///< after resume(): the other end's number has not arrived
  std::uint64_t own_count_ = 0, their_count_ = 0;
  std::size_t count_left_ = 0, count_got_ = 0;  ///< bytes of own_count_ to send, and of their_count_ received

  FrameHeader in_;
  std::size_t header_got_ = 0;
  std::size_t announced_from_ = 1;  ///< bytes that must arrive before epoll reports them
  bool in_frame_ = false;
  std::size_t in_left_ = 0;  ///< payload bytes of the frame that have not arrived
  unsigned char* target_ = nullptr;
  unsigned char small_[16 << 10];
};

}  // namespace hvd::transport::tcp

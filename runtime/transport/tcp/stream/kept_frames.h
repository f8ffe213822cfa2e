/// @file kept_frames.h — sent frames that the other end may lack.
///
/// The kernel may lose bytes that it has accepted, when their connection ends.  The lane keeps each frame until the
/// other end's kernel has acknowledged it.  The kernel's buffer for sent bytes so bounds the kept bytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>

#include "transport/tcp/stream/frame.h"

namespace hvd::transport::tcp {

class KeptFrames {
 public:
  /// Adds a frame that has left and owns its payload.  @p end: bytes of the connection, up to
  /// the frame's last byte or a later one.
  void add(OutFrame frame, std::uint64_t end);
  /// Bytes of all kept frames.
  std::size_t bytes() const { return bytes_; }
  /// Drops the frames within the first @p acknowledged bytes of the connection.
  void drop(std::uint64_t acknowledged);
  /// Puts the kept frames back, so that @p out begins with the first byte that the other end lacks.  Afterwards no
  /// frame is kept.  @p sent: the bytes of all frames sent.  @p received: the number of these bytes that the other end
  /// reports as received.  Throws Error{internal} if @p received is more than @p sent, or if the next byte is no longer
  /// kept.
  void give_back(std::deque<OutFrame>& out, std::uint64_t sent, std::uint64_t received);

 private:
  struct Kept {
    OutFrame frame;
    std::uint64_t end = 0;
  };
  std::deque<Kept> kept_;
  std::size_t bytes_ = 0;
};

}  // namespace hvd::transport::tcp

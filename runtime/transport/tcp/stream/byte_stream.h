/// @file byte_stream.h — sends and receives the bytes of a lane, plain or encrypted (tls_stream.h).
///
/// No call blocks.  Thread: one at a time.
#pragma once
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "transport/tcp/stream/socket_calls.h"

namespace hvd::transport::tcp {

class TlsSession;

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Accepts bytes in order.  Returns the number of accepted bytes, or -1 with errno, like sendmsg.  The caller may
  /// then reuse the memory of these bytes.  Accepted bytes can still wait in the stream (waiting()).
  virtual ssize_t send(const iovec* parts, int count) = 0;
  /// The number of bytes for the kernel that the stream has made of the accepted bytes.
  virtual std::uint64_t written() const = 0;
  /// The number of these bytes that the kernel has not taken.
  virtual std::size_t waiting() const { return 0; }
  /// Sends waiting bytes until the kernel accepts no more.  Returns 0 or an errno.
  virtual int flush() { return 0; }
  /// Receives bytes; returns like readv.  If @p parts are not filled and pending() is false, no more bytes are
  /// available now.  @p asks_kernel false: returns only bytes that the stream has already read.
  virtual ssize_t receive(const iovec* parts, int count, bool asks_kernel) = 0;
  /// True if receive() has a result that epoll does not report.
  virtual bool pending() const { return false; }
  /// While pending() is false: the maximum number of bytes read from the kernel that receive() has not returned yet.
  virtual std::size_t read_ahead() const { return 0; }
};

/// Makes the stream of socket @p fd.  @p calls and @p fd must outlive the stream.  @p session: the session of the
/// handshake, for an encrypted stream; null: a plain stream.  @p rest: bytes that were received after the handshake.
std::unique_ptr<ByteStream> make_stream(SocketCalls& calls, int fd, std::unique_ptr<TlsSession> session,
                                        std::string rest);

}  // namespace hvd::transport::tcp

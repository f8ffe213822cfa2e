/// @file byte_stream.h — how a lane's bytes cross its connection: as they are, or encrypted (tls_stream.h).
///
/// Nothing blocks.  Thread: one at a time.
#pragma once
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <string>

#include "transport/tcp/stream/socket_calls.h"

namespace hvd::transport::tcp {

class TlsSession;

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Takes bytes in sequence, as sendmsg does: how many, or -1 and errno.  Their memory is free then; they may still
  /// wait here (holds()).
  virtual ssize_t send(const iovec* parts, int count) = 0;
  /// Has taken what it has not sent.
  virtual bool holds() const { return false; }
  /// Sends of that what the kernel takes.  0, or an errno.
  virtual int flush() { return 0; }
  /// As readv.  Fewer bytes than @p parts have room for: there are no more now, unless pending().  @p asks_kernel
  /// false: only what is here already.
  virtual ssize_t receive(const iovec* parts, int count, bool asks_kernel) = 0;
  /// There is something to receive() of which epoll does not tell.
  virtual bool pending() const { return false; }
  /// The most bytes that the stream may have read from the kernel beyond those that read() has returned.
  virtual std::size_t read_ahead() const { return 0; }
};

/// Of socket @p fd; both must outlive it.  @p session  of the handshake, for an encrypted one; null: it is plain.
/// @p rest: bytes that came behind the handshake.
std::unique_ptr<ByteStream> make_stream(SocketCalls& calls, int fd, std::unique_ptr<TlsSession> session,
                                        std::string rest);

}  // namespace hvd::transport::tcp

/// @file socket_calls.h — the system calls of the TCP transport.
///
/// A seam for tests: their twin makes each call fail once.  All results and errno are those of the call itself.
#pragma once
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>

namespace hvd::transport::tcp {

class SocketCalls {
 public:
  virtual ~SocketCalls() = default;
  /// A TCP or unix socket that does not block.
  virtual int socket(int family);
  virtual int connect(int fd, const sockaddr* to, socklen_t bytes);
  /// SO_ERROR of a connection that was being made: 0, or an errno.
  virtual int connect_error(int fd);
  /// A connection that does not block.
  virtual int accept(int listener);
  virtual ssize_t send(int fd, const iovec* parts, int count);
  virtual ssize_t receive(int fd, const iovec* parts, int count);
  /// So many bytes are to be there before epoll tells of them; fewer where the kernel's buffer holds no more, and at
  /// the connection's end.  Where it does not work each byte is told of, as before.
  virtual void announce_from(int fd, int bytes);
  virtual int epoll_ctl(int epoll, int what, int fd, std::uint32_t events);
};

}  // namespace hvd::transport::tcp

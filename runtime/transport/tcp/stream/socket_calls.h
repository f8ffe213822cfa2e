/// @file socket_calls.h — the system calls of the TCP transport.
///
/// Tests derive from this class to make each call fail once.  Results and errno are those of the system call.
#pragma once
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>

namespace hvd::transport::tcp {

class SocketCalls {
 public:
  virtual ~SocketCalls() = default;
  /// Makes a non-blocking TCP or unix socket.
  virtual int socket(int family);
  virtual int connect(int fd, const sockaddr* to, socklen_t bytes);
  /// Returns SO_ERROR of a socket after connect(): 0, or an errno.
  virtual int connect_error(int fd);
  /// Returns a non-blocking connection.
  virtual int accept(int listener);
  virtual ssize_t send(int fd, const iovec* parts, int count);
  virtual ssize_t receive(int fd, const iovec* parts, int count);
  /// Makes epoll report @p fd only when at least @p bytes bytes have arrived.  epoll reports fewer bytes if the
  /// kernel's buffer is full, or if the connection ends.  Errors are ignored: epoll then reports every byte.
  virtual void announce_from(int fd, int bytes);
  /// The number of sent bytes that the other end's kernel has not acknowledged, or -1 with errno.
  virtual int unacknowledged(int fd);
  virtual int epoll_ctl(int epoll, int what, int fd, std::uint32_t events);
};

}  // namespace hvd::transport::tcp

#include "transport/tcp/stream/socket_calls.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

#include <cerrno>

namespace hvd::transport::tcp {

int SocketCalls::socket(int family) {
  return ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, family == AF_UNIX ? 0 : IPPROTO_TCP);
}

int SocketCalls::connect(int fd, const sockaddr* to, socklen_t bytes) { return ::connect(fd, to, bytes); }

int SocketCalls::connect_error(int fd) {
  int error = 0;
  socklen_t bytes = sizeof error;
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 ? error : errno;
}

int SocketCalls::accept(int listener) { return ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); }

ssize_t SocketCalls::send(int fd, const iovec* parts, int count) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = static_cast<std::size_t>(count);
  return ::sendmsg(fd, &message, MSG_NOSIGNAL);
}

ssize_t SocketCalls::receive(int fd, const iovec* parts, int count) { return ::readv(fd, parts, count); }

void SocketCalls::announce_from(int fd, int bytes) {
  (void)::setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
}

int SocketCalls::unacknowledged(int fd) {
  int bytes = 0;
  return ::ioctl(fd, SIOCOUTQ, &bytes) == 0 ? bytes : -1;
}

int SocketCalls::epoll_ctl(int epoll, int what, int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  return ::epoll_ctl(epoll, what, fd, &event);
}

}  // namespace hvd::transport::tcp

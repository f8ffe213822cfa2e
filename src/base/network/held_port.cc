#include "base/network/held_port.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/error.h"
#include "base/text.h"

namespace hvd {

HeldPort::HeldPort() {
  int version = AF_INET6;
  socket_ = Fd(::socket(version, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket_) socket_ = Fd(::socket(version = AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1, no = 0;
  sockaddr_storage address{};  // any address, any port
  address.ss_family = static_cast<sa_family_t>(version);
  socklen_t size = version == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (version == AF_INET6) ::setsockopt(socket_.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  auto* const where = reinterpret_cast<sockaddr*>(&address);
  if (!socket_ || ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      ::bind(socket_.get(), where, size) != 0 || ::getsockname(socket_.get(), where, &size) != 0)
    throw Error(Code::unavailable, "this host", "no TCP port is free: " + errno_text(errno));
  number_ = ntohs(version == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                      : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

}  // namespace hvd

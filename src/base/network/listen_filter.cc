#include "base/network/listen_filter.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/format.h"
#include "base/network/listen_filter_program.h"

namespace hvd {

namespace {

// Numbers of system calls, equal on every architecture.  The headers of older C libraries lack the names.
constexpr long pidfd_open = 434, pidfd_getfd = 438;

bool listens_to_others(int fd) {
  int listens = 0, domain = 0;
  socklen_t size = sizeof listens;
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || !listens) return false;
  size = sizeof domain;
  if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0) return false;
  sockaddr_storage own{};
  size = sizeof own;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) != 0) return false;
  if (domain == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in*>(&own)->sin_addr.s_addr) >> 24 != IN_LOOPBACKNET;
  return domain == AF_INET6 && !IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&own)->sin6_addr);
}

/// Attaches the filter to a socket for which listens_to_others() is true.
bool attach(int fd, std::vector<sock_filter>& code) {
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  return ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0;
}

struct Socket {
  int fd;
  std::uint64_t inode;
};

/// The sockets of a process; empty also if this process may not see the other's descriptors.
std::vector<Socket> sockets_of(pid_t pid) {
  std::vector<Socket> found;
  DIR* const entries = ::opendir(formatted("/proc/{}/fd", pid).c_str());
  if (!entries) return found;
  while (const dirent* entry = ::readdir(entries)) {
    char target[40] = {};
    if (::readlinkat(::dirfd(entries), entry->d_name, target, sizeof target - 1) < 0) continue;
    constexpr std::string_view prefix = "socket:[";
    if (std::string_view(target).starts_with(prefix))
      found.push_back({std::atoi(entry->d_name), std::strtoull(target + prefix.size(), nullptr, 10)});
  }
  ::closedir(entries);
  return found;
}

/// A copy of descriptor @p number of another process.  @p process  a pidfd
Fd borrowed(int process, int number) { return Fd(static_cast<int>(::syscall(pidfd_getfd, process, number, 0))); }

}  // namespace

int close_listeners(pid_t pid) noexcept {
  const bool own = pid == ::getpid();
  const Fd process(own ? -1 : static_cast<int>(::syscall(pidfd_open, pid, 0)));
  if (!own && !process) return 0;
  std::vector<sock_filter> code = let_in({});
  int closed = 0;
  for (const Socket& socket : sockets_of(pid)) {
    const Fd copy = own ? Fd() : borrowed(process.get(), socket.fd);
    const int fd = own ? socket.fd : copy.get();
    closed += fd >= 0 && listens_to_others(fd) && attach(fd, code);
  }
  return closed;
}

std::optional<std::vector<Address>> own_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return std::nullopt;
  std::vector<Address> found;
  for (const ifaddrs* one = list; one; one = one->ifa_next) {
    if (!one->ifa_addr) continue;
    Address address{};
    if (one->ifa_addr->sa_family == AF_INET) {
      const in_addr raw = reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr;
      if (ntohl(raw.s_addr) >> 24 == IN_LOOPBACKNET) continue;
      address[10] = address[11] = 0xff;
      std::memcpy(&address[12], &raw, sizeof raw);
    } else if (one->ifa_addr->sa_family == AF_INET6) {
      const in6_addr& raw = reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr;
      if (IN6_IS_ADDR_LOOPBACK(&raw)) continue;
      std::memcpy(address.data(), &raw, sizeof raw);
    } else {
      continue;
    }
    found.push_back(address);
  }
  ::freeifaddrs(list);
  return found;
}

std::vector<std::uint64_t> open_listeners() {
  std::vector<std::uint64_t> inodes;
  for (const Socket& socket : sockets_of(::getpid()))
    if (listens_to_others(socket.fd)) inodes.push_back(socket.inode);
  std::sort(inodes.begin(), inodes.end());
  return inodes;
}

bool restrict_listener(int fd, const std::vector<Address>& from) {
  std::vector<sock_filter> code = let_in(from);
  return attach(fd, code);
}

int restrict_listeners(const std::vector<std::uint64_t>& but, const std::vector<Address>& from) {
  std::vector<sock_filter> code = let_in(from);
  int narrowed = 0;
  for (const Socket& socket : sockets_of(::getpid()))
    if (listens_to_others(socket.fd) && !std::binary_search(but.begin(), but.end(), socket.inode))
      narrowed += attach(socket.fd, code);
  return narrowed;
}

}  // namespace hvd

#include "base/doors.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace hvd {

namespace {

constexpr std::uint32_t network = static_cast<std::uint32_t>(SKF_NET_OFF);  // offsets from the IP header on
constexpr std::uint32_t accept_all = 0xffffffff, drop = 0;

/// Classic BPF.  A TCP socket's filter sees the packet from its TCP header on; the IP header is at `network`.
/// Let in: IPv4 from 127.x.x.x, and whatever goes from an address to that very address (::1 does).
std::vector<sock_filter> from_this_machine() {
  std::vector<sock_filter> code;
  auto word = [&](std::uint32_t at) { code.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, network + at)); };
  auto byte = [&](std::uint32_t at) { code.push_back(BPF_STMT(BPF_LD | BPF_B | BPF_ABS, network + at)); };
  auto end = [&](std::uint32_t verdict) { code.push_back(BPF_STMT(BPF_RET | BPF_K, verdict)); };
  auto drop_unless_same = [&](std::uint32_t source, std::uint32_t target) {
    word(source);
    code.push_back(BPF_STMT(BPF_MISC | BPF_TAX, 0));
    word(target);
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 1, 0));
    end(drop);
  };
  byte(0);  // the version is in its upper half
  code.push_back(BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 4));
  code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 6, 9, 0));
  byte(12);
  code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IN_LOOPBACKNET, 0, 1));
  end(accept_all);
  drop_unless_same(12, 16);
  end(accept_all);
  for (std::uint32_t at = 8; at < 24; at += 4) drop_unless_same(at, at + 16);  // where version 6 went
  end(accept_all);
  return code;
}

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

bool close_to_others(int fd) {
  std::vector<sock_filter> code = from_this_machine();
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  return listens_to_others(fd) && ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0;
}

/// A copy of another process's descriptor.
Fd borrowed(int process, int number) { return Fd(static_cast<int>(::syscall(SYS_pidfd_getfd, process, number, 0))); }

}  // namespace

int close_doors(pid_t pid) noexcept {
  const bool own = pid == ::getpid();
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  const Fd process(own ? -1 : static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  DIR* const entries = ::opendir(folder.c_str());
  if (!entries || (!own && !process)) {
    if (entries) ::closedir(entries);
    return 0;
  }
  int closed = 0;
  while (const dirent* entry = ::readdir(entries)) {
    char target[16] = {};
    if (::readlinkat(::dirfd(entries), entry->d_name, target, sizeof target - 1) < 0) continue;
    if (std::string_view(target).substr(0, 7) != "socket:") continue;
    const int number = std::atoi(entry->d_name);
    if (own)
      closed += close_to_others(number);
    else if (const Fd copy = borrowed(process.get(), number))
      closed += close_to_others(copy.get());
  }
  ::closedir(entries);
  return closed;
}

}  // namespace hvd

#include "pmix/gate.h"

#include <dirent.h>
#include <linux/filter.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "wire/bounded_accept.h"

namespace hvd::pmix {
namespace {

bool holds(pid_t pid, const std::string& target) {
  DIR* const entries = ::opendir(("/proc/" + std::to_string(pid) + "/fd").c_str());
  if (!entries) return false;
  bool found = false;
  std::array<char, 64> link{};
  while (const dirent* entry = found ? nullptr : ::readdir(entries)) {
    const ssize_t n = ::readlinkat(::dirfd(entries), entry->d_name, link.data(), link.size());
    found = n > 0 && std::string_view(link.data(), static_cast<std::size_t>(n)) == target;
  }
  ::closedir(entries);
  return found;
}

/// The children of all threads of @p pid.  Needs CONFIG_PROC_CHILDREN, which every distribution's kernel has.
std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> found;
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  DIR* const entries = ::opendir(tasks.c_str());
  if (!entries) return found;
  while (const dirent* entry = ::readdir(entries)) {
    std::ifstream list(tasks + "/" + entry->d_name + "/children");
    for (pid_t child; list >> child;) found.push_back(child);
  }
  ::closedir(entries);
  return found;
}

/// One side of a connection as sock_diag(7) wants it.
struct Side {
  std::array<std::uint32_t, 4> address{};
  std::uint16_t port = 0;
  int family = AF_UNSPEC;
};

Side side_of(const sockaddr_storage& storage) {
  Side side;
  side.family = storage.ss_family;
  if (storage.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(storage);
    side.address[0] = in.sin_addr.s_addr;
    side.port = in.sin_port;
  } else if (storage.ss_family == AF_INET6) {
    const auto& in = reinterpret_cast<const sockaddr_in6&>(storage);
    std::memcpy(side.address.data(), &in.sin6_addr, sizeof in.sin6_addr);
    side.port = in.sin6_port;
  }
  return side;
}

bool allow_descendants(int connection) {
  const std::uint64_t inode = peer_inode(connection);
  return inode != 0 && is_held_below(::getpid(), inode);
}

}  // namespace

std::uint64_t peer_inode(int connection) {
  sockaddr_storage theirs{}, ours{};
  socklen_t n = sizeof theirs, m = sizeof ours;
  if (::getpeername(connection, reinterpret_cast<sockaddr*>(&theirs), &n) != 0 ||
      ::getsockname(connection, reinterpret_cast<sockaddr*>(&ours), &m) != 0)
    return 0;
  const Side peer = side_of(theirs), here = side_of(ours);
  if (peer.family != AF_INET && peer.family != AF_INET6) return 0;

  struct {
    nlmsghdr header;
    inet_diag_req_v2 request;
  } query{};
  query.header.nlmsg_len = sizeof query;
  query.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  query.header.nlmsg_flags = NLM_F_REQUEST;
  query.request.sdiag_family = static_cast<std::uint8_t>(peer.family);
  query.request.sdiag_protocol = IPPROTO_TCP;
  query.request.idiag_states = ~0U;
  query.request.id.idiag_sport = peer.port;
  query.request.id.idiag_dport = here.port;
  std::memcpy(query.request.id.idiag_src, peer.address.data(), sizeof peer.address);
  std::memcpy(query.request.id.idiag_dst, here.address.data(), sizeof here.address);
  query.request.id.idiag_cookie[0] = query.request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;

  const Fd kernel(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  alignas(nlmsghdr) std::array<char, 8192> answer{};
  if (!kernel || ::send(kernel.get(), &query, sizeof query, 0) != sizeof query) return 0;
  const ssize_t size = ::recv(kernel.get(), answer.data(), answer.size(), 0);
  if (size < static_cast<ssize_t>(NLMSG_LENGTH(sizeof(inet_diag_msg)))) return 0;
  const auto* const header = reinterpret_cast<const nlmsghdr*>(answer.data());
  if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY) return 0;
  const auto* const socket = static_cast<const inet_diag_msg*>(NLMSG_DATA(header));
  return socket->idiag_uid == ::geteuid() ? socket->idiag_inode : 0;
}

bool is_held_below(pid_t root, std::uint64_t inode) {
  const std::string target = "socket:[" + std::to_string(inode) + "]";
  std::vector<pid_t> open = children_of(root);
  while (!open.empty()) {
    const pid_t pid = open.back();
    open.pop_back();
    if (holds(pid, target)) return true;
    for (const pid_t child : children_of(pid)) open.push_back(child);
  }
  return false;
}

void guard_accept() { wire::set_accept_check(allow_descendants); }

int shut_listeners() {
  sock_filter drop_all[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
  const sock_fprog program{1, drop_all};
  int shut = 0;
  DIR* const entries = ::opendir("/proc/self/fd");
  if (!entries) return 0;
  while (const dirent* entry = ::readdir(entries)) {
    const int fd = std::atoi(entry->d_name);
    int listens = 0;
    socklen_t size = sizeof listens;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens)
      shut += ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0;
  }
  ::closedir(entries);
  return shut;
}

}  // namespace hvd::pmix

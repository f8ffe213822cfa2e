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
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/process/process.h"
#include "base/text.h"
#include "wire/channel/bounded_accept.h"

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

/// One end of a connection, in the form of sock_diag(7).
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

struct Ends {
  Side peer, here;
};

/// Returns the addresses of both ends.  Nothing: @p connection is not a TCP connection, or the other end is gone.
std::optional<Ends> ends_of(int connection) {
  sockaddr_storage theirs{}, ours{};
  socklen_t n = sizeof theirs, m = sizeof ours;
  if (::getpeername(connection, reinterpret_cast<sockaddr*>(&theirs), &n) != 0 ||
      ::getsockname(connection, reinterpret_cast<sockaddr*>(&ours), &m) != 0)
    return std::nullopt;
  const Ends ends{side_of(theirs), side_of(ours)};
  if (ends.peer.family != AF_INET && ends.peer.family != AF_INET6) return std::nullopt;
  return ends;
}

/// Asks sock_diag(7) for the inode of socket @p peer, which is connected to @p here. 0: the socket belongs to another
/// user.  Nothing if the kernel does not know the socket, or has no sock_diag.
std::optional<std::uint64_t> inode_by_diag(const Side& peer, const Side& here) {
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
  if (!kernel || ::send(kernel.get(), &query, sizeof query, 0) != sizeof query) return std::nullopt;
  const ssize_t size = ::recv(kernel.get(), answer.data(), answer.size(), 0);
  const auto* const header = reinterpret_cast<const nlmsghdr*>(answer.data());
  if (size < static_cast<ssize_t>(NLMSG_LENGTH(sizeof(inet_diag_msg))) || header->nlmsg_type != SOCK_DIAG_BY_FAMILY)
    return std::nullopt;
  const auto* const socket = static_cast<const inet_diag_msg*>(NLMSG_DATA(header));
  return socket->idiag_uid == ::geteuid() ? socket->idiag_inode : 0;
}

std::string table_text(const Side& side) {
  std::array<char, 64> text{};
  std::size_t at = 0;
  for (int i = 0; i < (side.family == AF_INET ? 1 : 4); ++i)
    at += static_cast<std::size_t>(std::snprintf(text.data() + at, text.size() - at, "%08X", side.address[i]));
  std::snprintf(text.data() + at, text.size() - at, ":%04X", static_cast<unsigned>(ntohs(side.port)));
  return text.data();
}

/// Like inode_by_diag(), but from the kernel's table in /proc/net; 0 also if the socket is not in the table.
std::uint64_t inode_by_table(const Side& peer, const Side& here) {
  std::ifstream table(peer.family == AF_INET ? "/proc/net/tcp" : "/proc/net/tcp6");
  const std::string local = table_text(peer), remote = table_text(here), user = std::to_string(::geteuid());
  for (std::string line; std::getline(table, line);) {
    const std::vector<std::string> fields = words(line);
    if (fields.size() > 9 && fields[1] == local && fields[2] == remote && fields[7] == user)
      return static_cast<std::uint64_t>(to_integer(fields[9]).value_or(0));
  }
  return 0;
}

std::atomic<pid_t> allowed_root = 0;

bool allow_descendants(int connection) {
  const std::uint64_t inode = peer_inode(connection);
  if (inode == 0) return false;
  const bool allowed = is_held_below(allowed_root, inode);
  if (!allowed) std::fputs("hvdrank: refused a connection to PMIx from a process that is none of the job's\n", stderr);
  return allowed;
}

}  // namespace

std::uint64_t peer_inode(int connection) {
  const auto ends = ends_of(connection);
  if (!ends) return 0;
  if (const auto inode = inode_by_diag(ends->peer, ends->here)) return *inode;
  // If the kernel knows this process's end, it has sock_diag, and the other end is gone.
  if (inode_by_diag(ends->here, ends->peer)) return 0;
  return inode_by_table(ends->peer, ends->here);
}

std::optional<std::uint64_t> peer_inode_by_diag(int connection) {
  const auto ends = ends_of(connection);
  return ends ? inode_by_diag(ends->peer, ends->here) : 0;
}

std::uint64_t peer_inode_by_table(int connection) {
  const auto ends = ends_of(connection);
  return ends ? inode_by_table(ends->peer, ends->here) : 0;
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

void guard_accept(pid_t root) {
  allowed_root = root;
  wire::set_accept_check(allow_descendants);
}

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

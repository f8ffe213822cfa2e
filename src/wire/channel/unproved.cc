#include "unproved.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>

namespace hvd::wire {
namespace {

constexpr std::size_t forget_from = 1024;  ///< how many are kept before it is looked which are still there

/// 0: there is none.
ino_t inode_of(int fd) {
  struct stat about {};
  return ::fstat(fd, &about) == 0 ? about.st_ino : 0;
}

/// The bytes of the other end's address; empty: it is no TCP connection.
std::string source_of(int fd) {
  sockaddr_storage from{};
  socklen_t bytes = sizeof from;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&from), &bytes) != 0) return "";
  const auto text = [](const auto& address) {
    return std::string(reinterpret_cast<const char*>(&address), sizeof address);
  };
  if (from.ss_family == AF_INET) return text(reinterpret_cast<const sockaddr_in*>(&from)->sin_addr);
  if (from.ss_family == AF_INET6) return text(reinterpret_cast<const sockaddr_in6*>(&from)->sin6_addr);
  return "";
}

}  // namespace

void Unproved::add(int connection) {
  std::string source = source_of(connection);
  if (source.empty()) return;
  const std::lock_guard lock(mutex_);
  guests_.push_back({connection, inode_of(connection), std::move(source)});
  if (guests_.size() % forget_from == 0) forget_others();
}

void Unproved::forget_others() {
  std::erase_if(guests_, [this](const Guest& g) { return inode_of(g.fd) != g.inode || has_proved_(g.fd); });
}

void Unproved::end_some() {
  const std::lock_guard lock(mutex_);
  forget_others();
  std::map<std::string, std::size_t> by_source;
  for (const Guest& g : guests_) ++by_source[g.source];
  const auto most = std::max_element(by_source.begin(), by_source.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == by_source.end()) return;
  std::size_t left = most->second / 4 + 1;
  std::erase_if(guests_, [&](const Guest& g) {
    if (left == 0 || g.source != most->first) return false;
    --left;
    ::shutdown(g.fd, SHUT_RDWR);
    return true;
  });
}

}  // namespace hvd::wire

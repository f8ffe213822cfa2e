#include "rank/diagnostics/stacks/tcp_peers.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/file.h"
#include "base/format.h"
#include "base/text.h"

namespace hvd::rank {
namespace {

constexpr int many_times = 3;  ///< 1.4 s without an answer

std::optional<std::uint32_t> hex(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

/// The address in a text such as "0100007F:1F90" (IPv4), or with four such words before the colon (IPv6).  The words
/// are in the machine's byte order.  Empty for any other text.
std::string address(std::string_view text) {
  text = text.substr(0, text.find(':'));
  std::array<std::uint32_t, 4> words{};
  const std::size_t count = text.size() / 8;
  if (text.size() % 8 != 0 || (count != 1 && count != 4)) return {};
  for (std::size_t i = 0; i < count; ++i) {
    const auto word = hex(text.substr(8 * i, 8));
    if (!word) return {};
    words[i] = *word;
  }
  const bool mapped = count == 4 && words[0] == 0 && words[1] == 0 && words[2] == htonl(0xFFFF);
  char buffer[INET6_ADDRSTRLEN] = "";
  if (count == 1 || mapped)
    inet_ntop(AF_INET, &words[mapped ? 3 : 0], buffer, sizeof buffer);
  else
    inet_ntop(AF_INET6, words.data(), buffer, sizeof buffer);
  return buffer;
}

/// The inodes of the sockets that @p pid has open; empty if /proc does not show them.
std::set<std::string> socket_inodes(pid_t pid) {
  constexpr std::string_view begin = "socket:[";
  std::set<std::string> inodes;
  std::error_code error;
  for (std::filesystem::directory_iterator fds(formatted("/proc/{}/fd", pid), error), end; !error && fds != end;
       fds.increment(error)) {
    std::error_code gone;
    const std::string to = std::filesystem::read_symlink(fds->path(), gone).string();
    if (!gone && to.starts_with(begin)) inodes.insert(to.substr(begin.size(), to.size() - begin.size() - 1));
  }
  return inodes;
}

}  // namespace

std::vector<std::string> own_addresses() {
  std::vector<std::string> found;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return found;
  for (const ifaddrs* a = all; a; a = a->ifa_next) {
    if (!a->ifa_addr || (a->ifa_flags & IFF_LOOPBACK)) continue;
    char buffer[INET6_ADDRSTRLEN] = "";
    if (a->ifa_addr->sa_family == AF_INET)
      inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(a->ifa_addr)->sin_addr, buffer, sizeof buffer);
    else if (a->ifa_addr->sa_family == AF_INET6)
      inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(a->ifa_addr)->sin6_addr, buffer, sizeof buffer);
    if (*buffer) found.emplace_back(buffer);
  }
  freeifaddrs(all);
  return found;
}

std::set<std::string> unanswered_in(const std::string& table, const std::set<std::string>& inodes) {
  std::set<std::string> found;
  for (const std::string& line : split(table, '\n')) {
    // Fields: number, local, remote, state, queues, timer:when, retransmits, user, probes, inode.
    const std::vector<std::string> w = words(line);
    if (w.size() < 10 || !w[5].starts_with("01:") || !inodes.contains(w[9])) continue;  // 01: retransmission timer
    const auto repeated = hex(w[6]);
    const std::string peer = address(w[2]);
    if (repeated && *repeated >= many_times && !peer.empty()) found.insert(peer);
  }
  return found;
}

std::vector<std::string> unanswered(pid_t pid) {
  const std::set<std::string> inodes = socket_inodes(pid);
  if (inodes.empty()) return {};
  const std::string folder = formatted("/proc/{}/net/", pid);
  std::set<std::string> found = unanswered_in(whole_text(folder + "tcp"), inodes);
  found.merge(unanswered_in(whole_text(folder + "tcp6"), inodes));
  return {found.begin(), found.end()};
}

}  // namespace hvd::rank

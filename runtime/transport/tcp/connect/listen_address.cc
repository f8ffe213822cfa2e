#include "transport/tcp/connect/listen_address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <random>
#include <sstream>

#include "base/error.h"
#include "base/text.h"

namespace hvd::transport::tcp {
std::string ListenAddress::text() const {
  std::string text = std::to_string(port) + " " + std::to_string(world);
  for (const Address& a : addresses) text += " " + to_text(a);
  for (const CardAddress& c : cards) text += " " + c.text();
  return text;
}

ListenAddress ListenAddress::of(const std::string& text) {
  ListenAddress e;
  std::istringstream in(text);
  in >> e.port >> e.world;
  bool good = !in.fail();
  for (std::string word; in >> word;) {
    if (const auto card = CardAddress::of(word)) {
      e.cards.push_back(*card);
      continue;
    }
    const auto address = address_of_text(word);
    good &= address.has_value();
    if (address) e.addresses.push_back(*address);
  }
  if (!good || e.world == 0) throw Error(Code::internal, "TCP", "a rank's addresses cannot be read: " + text);
  return e;
}

std::vector<Address> addresses_of_host(const std::string& interfaces, std::vector<CardAddress>* cards) {
  std::vector<Address> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  const std::vector<std::string> names = interfaces.empty() ? std::vector<std::string>{} : hvd::split(interfaces, ',');
  bool loopback = names.empty();
  for (const ifaddrs* one = list; one; one = one->ifa_next) {
    const auto address = address_of(one->ifa_addr);
    if (!(one->ifa_flags & IFF_UP) || !address) continue;
    const bool named = std::any_of(names.begin(), names.end(),
                                   [&](const std::string& n) { return is_meant(n, one->ifa_name, *address); });
    if (one->ifa_flags & IFF_LOOPBACK) {
      loopback |= named;
      continue;
    }
    if (!named && !names.empty()) continue;
    found.push_back(*address);
    cards->push_back({*address, network_bits(*one), megabits_of(one->ifa_name), one->ifa_name});
  }
  ::freeifaddrs(list);
  if (found.empty() && loopback) found.push_back(loopback_address);
  return found;
}

Fd open_listener(std::uint16_t* port) {
  for (const int family : {AF_INET6, AF_INET}) {
    Fd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
    if (!fd) continue;
    const int no = 0;
    if (family == AF_INET6) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    sockaddr_storage own{};
    own.ss_family = static_cast<sa_family_t>(family);
    socklen_t bytes = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&own), bytes) != 0 || ::listen(fd.get(), 4096) != 0 ||
        ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &bytes) != 0)
      continue;
    *port = ntohs(family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&own)->sin6_port
                                     : reinterpret_cast<sockaddr_in*>(&own)->sin_port);
    return fd;
  }
  throw Error(Code::unavailable, "TCP", "no socket can listen: " + errno_text(errno), "use --transport mpi");
}

std::vector<Address> by_nearness(const ListenAddress& peer, const std::vector<Address>& own) {
  auto bits = [&](const Address& a) {
    int most = 0;
    for (const Address& o : own) most = std::max(most, common_bits(a, o));
    return most;
  };
  std::vector<Address> sorted = peer.addresses;
  std::stable_sort(sorted.begin(), sorted.end(), [&](const Address& a, const Address& b) { return bits(a) > bits(b); });
  return sorted;
}

CallAddress call_address(const Address& address, std::uint16_t port) {
  CallAddress to;
  to.text = to_text(address);
  if (is_ipv4(address)) {
    auto* four = reinterpret_cast<sockaddr_in*>(&to.at);
    four->sin_family = AF_INET;
    four->sin_port = htons(port);
    std::memcpy(&four->sin_addr, &address[12], sizeof four->sin_addr);
    to.bytes = sizeof *four;
    return to;
  }
  auto* six = reinterpret_cast<sockaddr_in6*>(&to.at);
  six->sin6_family = AF_INET6;
  six->sin6_port = htons(port);
  std::memcpy(&six->sin6_addr, address.data(), sizeof six->sin6_addr);
  to.bytes = sizeof *six;
  return to;
}

CallAddress call_address(const std::string& path) {
  CallAddress to;
  to.text = path;
  auto* local = reinterpret_cast<sockaddr_un*>(&to.at);
  local->sun_family = AF_UNIX;
  const std::size_t length = std::min(path.size(), sizeof local->sun_path - 1);
  std::memcpy(local->sun_path, path.data(), length);
  const bool has_file = !path.starts_with('@');
  if (!has_file) local->sun_path[0] = 0;
  to.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length + (has_file ? 1 : 0));
  return to;
}

}  // namespace hvd::transport::tcp

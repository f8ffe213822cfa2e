#include "base/network/interface_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "base/text.h"

namespace hvd {
namespace {

constexpr std::size_t ipv4_at = 12;  ///< place of an IPv4 address in ::ffff:a.b.c.d

Address mapped(const in_addr& raw) {
  Address address{};
  address[ipv4_at - 2] = address[ipv4_at - 1] = 0xff;
  std::memcpy(&address[ipv4_at], &raw, sizeof raw);
  return address;
}

std::optional<Address> address_of(const sockaddr* from) {
  if (from && from->sa_family == AF_INET) return mapped(reinterpret_cast<const sockaddr_in*>(from)->sin_addr);
  if (!from || from->sa_family != AF_INET6) return std::nullopt;
  const in6_addr& raw = reinterpret_cast<const sockaddr_in6*>(from)->sin6_addr;
  if (IN6_IS_ADDR_LINKLOCAL(&raw)) return std::nullopt;
  Address address{};
  std::memcpy(address.data(), &raw, sizeof raw);
  return address;
}

int ones_in(const sockaddr* mask) {
  if (!mask) return 128;
  const bool is_ipv4 = mask->sa_family == AF_INET;
  const auto* bytes =
      is_ipv4 ? reinterpret_cast<const unsigned char*>(&reinterpret_cast<const sockaddr_in*>(mask)->sin_addr)
              : reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr.s6_addr;
  int ones = 0;
  for (int i = 0; i < (is_ipv4 ? 4 : 16); ++i) ones += std::popcount(bytes[i]);
  return is_ipv4 ? 8 * static_cast<int>(ipv4_at) + ones : ones;
}

bool is_ipv4(const Address& a) { return IN6_IS_ADDR_V4MAPPED(reinterpret_cast<const in6_addr*>(a.data())); }

}  // namespace

bool InterfaceAddress::is_near(const Address& other) const {
  for (int i = 0; i < bits; ++i) {
    const auto byte = static_cast<std::size_t>(i / 8);
    if (((at[byte] ^ other[byte]) >> (7 - i % 8) & 1) != 0) return false;
  }
  return true;
}

std::string InterfaceAddress::text() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (is_ipv4(at))
    ::inet_ntop(AF_INET, &at[ipv4_at], text, sizeof text);
  else
    ::inet_ntop(AF_INET6, at.data(), text, sizeof text);
  return text;
}

std::vector<InterfaceAddress> interface_addresses() {
  std::vector<InterfaceAddress> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  for (const ifaddrs* one = list; one; one = one->ifa_next) {
    const auto address = address_of(one->ifa_addr);
    const unsigned up = IFF_UP | IFF_RUNNING;
    if (!address || (one->ifa_flags & up) != up || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    found.push_back({one->ifa_name, *address, ones_in(one->ifa_netmask)});
  }
  ::freeifaddrs(list);
  return found;
}

std::optional<Address> address_in(std::string text) {
  if (text.starts_with("tcp://")) text = text.substr(6, text.rfind(':') - 6);
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  in_addr four{};
  if (::inet_pton(AF_INET, text.c_str(), &four) == 1) return mapped(four);
  Address address{};
  if (::inet_pton(AF_INET6, text.c_str(), address.data()) == 1) return address;
  return std::nullopt;
}

std::vector<std::string> in_other_networks(const std::string& used, const std::vector<std::string>& offered,
                                           const std::vector<InterfaceAddress>& own) {
  std::set<std::string> taken;
  if (const auto first = address_in(used))
    for (const InterfaceAddress& o : own)
      if (o.is_near(*first)) taken.insert(o.interface);
  std::vector<std::string> chosen;
  for (const std::string& text : offered) {
    const auto theirs = address_in(text);
    if (!theirs) continue;
    const auto near = std::find_if(own.begin(), own.end(), [&](const InterfaceAddress& o) {
      return o.at != *theirs && o.is_near(*theirs) && !taken.contains(o.interface);
    });
    if (near == own.end()) continue;
    taken.insert(near->interface);
    chosen.push_back(text);
  }
  return chosen;
}

bool is_meant(const std::string& word, const InterfaceAddress& address) {
  const std::size_t slash = word.find('/');
  if (slash == std::string::npos) return word == address.interface;
  const auto network = address_in(word.substr(0, slash));
  const auto bits = to_integer(word.substr(slash + 1));
  if (!network || !bits || *bits < 0 || *bits > 128) return false;
  const int before = is_ipv4(*network) ? 8 * static_cast<int>(ipv4_at) : 0;
  return InterfaceAddress{"", *network, std::min(before + static_cast<int>(*bits), 128)}.is_near(address.at);
}

}  // namespace hvd

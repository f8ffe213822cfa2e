#include "base/network/interface_address.h"

#include <arpa/inet.h>
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

}  // namespace

bool is_ipv4(const Address& address) { return IN6_IS_ADDR_V4MAPPED(reinterpret_cast<const in6_addr*>(address.data())); }

std::string to_text(const Address& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (is_ipv4(address))
    ::inet_ntop(AF_INET, &address[ipv4_at], text, sizeof text);
  else
    ::inet_ntop(AF_INET6, address.data(), text, sizeof text);
  return text;
}

std::optional<Address> address_of_text(const std::string& text) {
  in_addr four{};
  if (::inet_pton(AF_INET, text.c_str(), &four) == 1) return mapped(four);
  Address address{};
  if (::inet_pton(AF_INET6, text.c_str(), address.data()) == 1) return address;
  return std::nullopt;
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

int common_bits(const Address& a, const Address& b) {
  for (int i = 0; i < 128; ++i) {
    const auto byte = static_cast<std::size_t>(i / 8);
    if (((a[byte] ^ b[byte]) >> (7 - i % 8) & 1) != 0) return i;
  }
  return 128;
}

int network_bits(const ifaddrs& one) {
  if (!one.ifa_netmask) return 128;
  const bool four = one.ifa_addr->sa_family == AF_INET;
  const auto* mask =
      four ? reinterpret_cast<const unsigned char*>(&reinterpret_cast<const sockaddr_in*>(one.ifa_netmask)->sin_addr)
           : reinterpret_cast<const sockaddr_in6*>(one.ifa_netmask)->sin6_addr.s6_addr;
  int bits = 0;
  for (int i = 0; i < (four ? 4 : 16); ++i) bits += std::popcount(mask[i]);
  return bits + (four ? 8 * static_cast<int>(ipv4_at) : 0);
}

std::vector<InterfaceAddress> interface_addresses() {
  std::vector<InterfaceAddress> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  for (const ifaddrs* one = list; one; one = one->ifa_next) {
    const auto address = address_of(one->ifa_addr);
    const unsigned up = IFF_UP | IFF_RUNNING;
    if (!address || (one->ifa_flags & up) != up || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    found.push_back({one->ifa_name, *address, network_bits(*one)});
  }
  ::freeifaddrs(list);
  return found;
}

std::optional<Address> address_in(std::string text) {
  if (text.starts_with("tcp://")) text = text.substr(6, text.rfind(':') - 6);
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  return address_of_text(text);
}

std::string text_with_interface(const std::string& address, const std::vector<InterfaceAddress>& own) {
  const auto at = address_in(address);
  const auto found = std::find_if(own.begin(), own.end(), [&](const InterfaceAddress& o) { return at == o.at; });
  if (found != own.end()) return found->text() + " (" + found->interface + " here)";
  return at ? to_text(*at) : address;
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

bool is_meant(const std::string& word, const std::string& interface, const Address& address) {
  const std::size_t slash = word.find('/');
  if (slash == std::string::npos) return word == interface;
  const auto network = address_of_text(word.substr(0, slash));
  const auto bits = to_integer(word.substr(slash + 1));
  if (!network || !bits || *bits < 0 || *bits > 128) return false;
  return common_bits(*network, address) >= (is_ipv4(*network) ? 8 * static_cast<int>(ipv4_at) : 0) + *bits;
}

}  // namespace hvd

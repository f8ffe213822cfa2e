/// @file interface_address.h — the addresses of this host's network interfaces, and their networks.
#pragma once
#include <ifaddrs.h>
#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

#include "base/network/listen_filter.h"

namespace hvd {

bool is_ipv4(const Address& address);
/// "10.0.0.1", "fd00::1"
std::string to_text(const Address& address);
std::optional<Address> address_of_text(const std::string& text);
/// nullopt: @p from is not an IP address, or is IPv6 link-local.  The scope of link-local addresses differs between
/// hosts.
std::optional<Address> address_of(const sockaddr* from);
/// Length of the common prefix.
int common_bits(const Address& a, const Address& b);
/// The prefix length of the interface's network in a 128-bit address.  @p one must have an address.
int network_bits(const ifaddrs& one);

struct InterfaceAddress {
  std::string interface;
  Address at{};
  int bits = 128;  ///< prefix length of the network, in the 128 bits of `at`

  /// @p other is in this network.
  bool is_near(const Address& other) const { return common_bits(at, other) >= bits; }
  std::string text() const { return to_text(at); }
};

/// Returns the addresses of interfaces that are up and have a link, in the system's order. Leaves out loopback and
/// link-local addresses.
std::vector<InterfaceAddress> interface_addresses();

/// The address in "10.0.0.1", "fd00::1" or "tcp://10.0.0.1:4123".  nullopt: it has none.
std::optional<Address> address_in(std::string text);

/// "10.0.0.1 (eth0 here)", or without the interface if no interface of @p own has the address.
/// @param address  as address_in() takes it
std::string text_with_interface(const std::string& address, const std::vector<InterfaceAddress>& own);

/// Returns the addresses of @p offered that a host reaches by another network than @p used. The result has at most one
/// address for each interface. Pure.
/// @param used, offered  another host's addresses, as address_in() takes them
/// @param own            interface_addresses()
std::vector<std::string> in_other_networks(const std::string& used, const std::vector<std::string>& offered,
                                           const std::vector<InterfaceAddress>& own);

/// @p word is the name of the interface, or a network ("10.0.0.0/8") that contains its address.
bool is_meant(const std::string& word, const std::string& interface, const Address& address);

}  // namespace hvd

/// @file listen_address.h — where a rank listens, and in what order others try its addresses.
#pragma once
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/network/listen_filter.h"
#include "transport/tcp/connect/interfaces.h"

namespace hvd::transport::tcp {

/// What a rank tells the others.
struct ListenAddress {
  std::uint16_t port = 0;          ///< 0: it cannot be called from other hosts
  std::uint64_t world = 0;         ///< a random number other than 0
  std::vector<Address> addresses;  ///< of its host
  std::vector<CardAddress> cards;  ///< the same addresses, where their network interfaces are known
  std::string path;                ///< of its unix socket: unix_listener.h.  Not part of text()

  std::string text() const;
  /// Throws Error{internal} on what text() does not make.
  static ListenAddress of(const std::string& text);
};

/// Addresses of this host's interfaces that are up, without loopback and link-local ones.  @p interfaces: names or
/// networks (10.0.0.0/24), comma-separated, as Open MPI's btl_tcp_if_include has them; empty: all.  Without a network
/// it is the loopback address: then the job's hosts can only be names of this one.
/// @param cards  out: the addresses whose network interface is known
std::vector<Address> addresses_of_host(const std::string& interfaces, std::vector<CardAddress>* cards);

/// A listening socket on a free port of all addresses.  Throws Error{unavailable}.
Fd open_listener(std::uint16_t* port);

/// The addresses of @p peer, those that share most leading bits with one of @p own first.
std::vector<Address> by_nearness(const ListenAddress& peer, const std::vector<Address>& own);

/// Where to call.
struct CallAddress {
  sockaddr_storage at{};
  socklen_t bytes = 0;
  std::string text;  ///< for people
  std::string card;  ///< by which; empty: as the kernel chooses
  bool is_local() const { return at.ss_family == AF_UNIX; }
};
CallAddress call_address(const Address& address, std::uint16_t port);
/// Of a unix socket; a path that begins with @ is a name without a file.
CallAddress call_address(const std::string& path);
std::string to_text(const Address& address);
std::optional<Address> address_of_text(const std::string& text);
/// nullopt: it is none of IP, or a link-local one, whose scope differs between hosts.
std::optional<Address> address_of(const sockaddr* from);
inline constexpr Address loopback_address = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};

}  // namespace hvd::transport::tcp

/// @file listen_address.h — the addresses where a rank listens, and the order in which other ranks call them.
#pragma once
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/network/interface_address.h"
#include "transport/tcp/connect/interfaces.h"

namespace hvd::transport::tcp {

/// The addresses that a rank sends to the other ranks.
struct ListenAddress {
  std::uint16_t port = 0;          ///< TCP port; 0: this rank does not listen on TCP
  std::uint64_t world = 0;         ///< a random number other than 0, new for each Doorway
  std::vector<Address> addresses;  ///< addresses of the rank's host
  std::vector<CardAddress> cards;  ///< the addresses whose network interface is known
  std::string path;                ///< UnixListener::path(); not part of text()

  std::string text() const;
  /// Parses the result of text().  Throws Error{internal} if the text is invalid.
  static ListenAddress of(const std::string& text);
};

/// Returns addresses of this host's interfaces that are up, without loopback and IPv6 link-local addresses.  If there
/// is none, and @p interfaces is empty or names a loopback interface, returns the loopback address.  All hosts of the
/// job are then this host.
/// @param interfaces  allowed names or networks (10.0.0.0/24), comma-separated, as in Open MPI's btl_tcp_if_include;
///   empty: all
/// @param cards  out: the same addresses with their network interfaces, without the loopback address
std::vector<Address> addresses_of_host(const std::string& interfaces, std::vector<CardAddress>* cards);

/// Opens a TCP socket that listens on a free port of all addresses.  @p port: out.  Throws Error{unavailable}.
Fd open_listener(std::uint16_t* port);

/// Returns the addresses of @p peer in the order in which to call them.  Addresses that share more leading bits with an
/// address of @p own come first.
std::vector<Address> by_nearness(const ListenAddress& peer, const std::vector<Address>& own);

/// An address for connect().
struct CallAddress {
  sockaddr_storage at{};
  socklen_t bytes = 0;
  std::string text;  ///< for messages to the user
  std::string card;  ///< network interface to use; empty: the kernel chooses
  bool is_local() const { return at.ss_family == AF_UNIX; }
};
CallAddress call_address(const Address& address, std::uint16_t port);
/// Returns the address of a unix socket.  A path that begins with @ is an abstract name.
CallAddress call_address(const std::string& path);
using hvd::to_text;  // a function of this name in interfaces.h hides it
inline constexpr Address loopback_address = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};

}  // namespace hvd::transport::tcp

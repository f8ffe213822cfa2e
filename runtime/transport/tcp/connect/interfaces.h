/// @file interfaces.h — the network interfaces of a host, and those by which two hosts reach each other.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/network/listen_filter.h"

namespace hvd::transport::tcp {

/// An address, its network interface and its network.
struct CardAddress {
  Address at{};
  int bits = 128;    ///< of the network's part, as of an IPv6 address
  int megabits = 0;  ///< a second, as the driver has it; 0: unknown
  std::string card;  ///< its name
  bool operator==(const CardAddress&) const = default;

  /// One word.
  std::string text() const;
  /// nullopt: text() does not make such a word.
  static std::optional<CardAddress> of(const std::string& word);
};

/// The speed of a network interface as its driver tells it, in Mbit/s.  0: unknown.
int megabits_of(const std::string& card);

/// A network that two hosts share, with the address of each host in it.
struct SharedNetwork {
  CardAddress own, theirs;
  int megabits = 0;  ///< of the slower end; 0: unknown
};

/// Networks with different network interfaces at both ends, the fastest first.  Both hosts find the same networks in
/// the same sequence.  Interfaces below an eighth of the fastest are left out, since their parts would come late.
std::vector<SharedNetwork> shared_networks(const std::vector<CardAddress>& own, const std::vector<CardAddress>& theirs);

/// "eth0 (10 Gbit/s)"
std::string to_text(const SharedNetwork& network);

}  // namespace hvd::transport::tcp

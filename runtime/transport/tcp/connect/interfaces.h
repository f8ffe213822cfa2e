/// @file interfaces.h — the network interfaces of a host, and the networks that two hosts share.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/network/listen_filter.h"

namespace hvd::transport::tcp {

/// An address, its network interface and its network.
struct CardAddress {
  Address at{};
  int bits = 128;    ///< prefix length of the network in the 128 bits of `at`
  int megabits = 0;  ///< speed in Mbit/s from the driver; 0: unknown
  std::string card;  ///< name of the network interface
  bool operator==(const CardAddress&) const = default;

  /// Returns one word without spaces.
  std::string text() const;
  /// Parses the result of text().  nullopt: @p word is invalid.
  static std::optional<CardAddress> of(const std::string& word);
};

/// Returns the speed of a network interface in Mbit/s, as reported by its driver.  0: unknown.
int megabits_of(const std::string& card);

/// A network that two hosts share, with the address of each host in it.
struct SharedNetwork {
  CardAddress own, theirs;
  int megabits = 0;  ///< speed of the slower end in Mbit/s, or the only known speed; 0: unknown
};

/// Returns the networks that two hosts share, the fastest first.  At both ends each network interface occurs only once.
/// Both hosts find the same networks in the same order.  Networks slower than an eighth of the fastest are left out,
/// because their parts would arrive late.  Networks of unknown speed are kept.
std::vector<SharedNetwork> shared_networks(const std::vector<CardAddress>& own, const std::vector<CardAddress>& theirs);

/// "eth0 (10 Gbit/s)"
std::string to_text(const SharedNetwork& network);

}  // namespace hvd::transport::tcp

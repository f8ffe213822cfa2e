/// @file interfaces.h — the network cards of a host, and those by which two hosts reach each other.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/network/listen_filter.h"

namespace hvd::transport::tcp {

/// An address, with the card that has it and the network that it is in.
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

/// What the card's driver says; 0: nothing.
int megabits_of(const std::string& card);

/// A network that two hosts are both in, by a card of each.
struct SharedNetwork {
  CardAddress own, theirs;
  int megabits = 0;  ///< of the slower end; 0: unknown
};

/// Networks that use other cards than one another at both ends, the fastest first.  Both hosts find the same ones in
/// the same sequence.  Cards below an eighth of the fastest are left out: what they carried would come late.
std::vector<SharedNetwork> shared_networks(const std::vector<CardAddress>& own, const std::vector<CardAddress>& theirs);

/// "eth0 (10 Gbit/s)"
std::string to_text(const SharedNetwork& network);

}  // namespace hvd::transport::tcp

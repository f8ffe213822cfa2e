/// @file network_model.h — estimated times of messages and bytes between nodes, by which plans of exchanges are chosen.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace hvd::ops {

struct NetworkModel {
  double latency_ns = 15'000;  ///< from a rank that sends to a rank that sleeps or polls
  double message_ns = 3'000;   ///< processor time for each message
  double byte_ns = 0.5;        ///< for each byte on the link; both directions work at once
  double add_byte_ns = 0.1;    ///< for adding a byte

  /// The number of slices of @p slice bytes that keep the link busy while each slice goes through its rounds.
  std::uint64_t slices_under_way(int rounds, std::size_t slice) const {
    constexpr std::uint64_t least = 3, most = 16;  // slices; memory sets the upper limit
    const double one = message_ns + static_cast<double>(slice) * byte_ns;
    return std::clamp(2 + static_cast<std::uint64_t>(rounds * latency_ns / one), least, most);
  }
};

}  // namespace hvd::ops

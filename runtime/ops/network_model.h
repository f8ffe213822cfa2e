/// @file network_model.h — what a message between nodes costs, and a byte: what plans of exchanges are chosen by.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace hvd::ops {

struct NetworkModel {
  double latency_ns = 15'000;  ///< from a rank that sends to one that sleeps or polls for it
  double message_ns = 3'000;   ///< of a processor's time, for each message
  double byte_ns = 0.5;        ///< on the link, each way at once
  double add_byte_ns = 0.1;

  /// So many slices keep the link busy while each of them goes through its rounds.
  std::uint64_t slices_under_way(int rounds, std::size_t slice) const {
    constexpr std::uint64_t least = 3, most = 16;  // slices; the memory limits them
    const double one = message_ns + static_cast<double>(slice) * byte_ns;
    return std::clamp(2 + static_cast<std::uint64_t>(rounds * latency_ns / one), least, most);
  }
};

}  // namespace hvd::ops

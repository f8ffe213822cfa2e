/// @file relayed_frame.h — between hosts, a host daemon's one connection carries what hvdrun and its guards say to each
/// other.
///
/// A guard's frame travels in a frame of its daemon, of the type `relayed`: u32 rank, u16 type, body (little endian).
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "channel.h"

namespace hvd::wire {

inline constexpr std::size_t relay_header_bytes = 6;
/// As the type of a relayed frame, from the daemon: that guard's connection has ended.
inline constexpr std::uint16_t guard_has_ended = 0;

struct RelayedFrame {
  std::uint32_t rank = 0;
  Frame frame;
};

Frame relayed(std::uint32_t rank, const Frame& frame);
/// Nothing where @p body is no such frame's.
std::optional<RelayedFrame> from_relayed(std::string_view body);

/// @p listener  hvdrun's; what the result returns makes each guard behind a daemon a peer of its own, whom send()
/// reaches, and whom gone() names after its own end or that of its daemon.
std::unique_ptr<Listener> with_relays(std::unique_ptr<Listener> listener);

}  // namespace hvd::wire

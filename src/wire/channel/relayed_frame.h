/// @file relayed_frame.h — frames between hvdrun and the guards of another host, over the connection of the host
/// daemon.
///
/// The body of a frame of Type::relayed holds the guard's frame: u32 rank, u16 type, body (little endian).
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "channel.h"

namespace hvd::wire {

inline constexpr std::size_t relay_header_bytes = 6;
/// The type of a relayed frame by which the daemon tells that the guard's connection has ended.
inline constexpr std::uint16_t guard_has_ended = 0;

struct RelayedFrame {
  std::uint32_t rank = 0;
  Frame frame;
};

Frame relayed(std::uint32_t rank, const Frame& frame);
/// Nothing where @p body is malformed.
std::optional<RelayedFrame> from_relayed(std::string_view body);

/// Makes each guard behind a daemon a separate peer.  send() reaches the guard.  gone() names the guard after the
/// guard's end or its daemon's end.  @p listener  hvdrun's
std::unique_ptr<Listener> with_relays(std::unique_ptr<Listener> listener);

}  // namespace hvd::wire

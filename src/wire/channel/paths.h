/// @file paths.h — one connection between hvdrun and a host daemon, over several networks.
///
/// A path is a connection over one network.  Frames travel by one path; the others are idle.  Where that path ends, the
/// daemon moves the connection to another path.  Both ends count frames, and keep each until the other end has
/// confirmed it.  After a move each end sends the frames that the other lacks, so every frame arrives once, in order.
/// All paths are opened at the start, because hvdrun's listening sockets close then.
///
/// Frames of the paths themselves are not counted.  Integers are little endian.
///   path       32 letters that name the connection, u8 number of this path (0: in use at first), u8 number of all
///              paths, text: hvdrun's address
///   moved      u64 frames received.  hvdrun answers with its own count.  All ones: hvdrun refuses.
///   confirmed  u64 frames received
/// An end whose peer claims an impossible count treats the peer as lost.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "wire/channel/channel.h"

namespace hvd::wire {

inline constexpr std::size_t path_name_letters = 32;
inline constexpr std::size_t most_paths = 16;
inline constexpr std::uint64_t refused_move = ~std::uint64_t{0};

/// A daemon's end of one path.
struct OpenPath {
  std::unique_ptr<Connection> connection;
  std::string address;  ///< hvdrun's, for people
};

/// The daemon's end.  @param paths  the first is connected; the others may be on their way, and make one attempt
/// Throws Error{unavailable}.
std::unique_ptr<Connection> over_paths(std::vector<OpenPath> paths);

/// hvdrun's end: makes all paths of a daemon one peer.  Peers without paths are passed on unchanged.
std::unique_ptr<Listener> with_paths(std::unique_ptr<Listener> listener);

std::string path_count_body(std::uint64_t count);
/// Returns refused_move for a malformed body.
std::uint64_t path_count_of(std::string_view body);

}  // namespace hvd::wire

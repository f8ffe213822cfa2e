/// @file slow_link.h — whether one host's link is slower than the others'.  Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace hvd::launcher {

/// What one rank has sent to another one, on another host.
struct UsedLink {
  int from_rank = 0, to_rank = 0;
  std::string from, to;  ///< hosts
  double bytes = 0;
  double seconds = 0;  ///< it was busy with them
};

struct SlowLink {
  std::string host;   ///< at one end of all of them
  std::string other;  ///< at the other end; empty: several
  bool sends = false, receives = false;
  std::vector<int> ranks;  ///< of `host`, which have such a link
  double rate = 0;         ///< bytes a second
  double others_rate = 0;  ///< the slowest of the others
  double seconds = 0;      ///< it was busy, the longest of its ranks
};

/// The links of less than half the rate of all others, where they have a host in common.  Links that were hardly used
/// say nothing.
std::optional<SlowLink> slow_link(std::vector<UsedLink> links);

}  // namespace hvd::launcher

/// @file slow_link.h — finds a host with slower links than the other hosts.  Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace hvd::launcher {

/// The data that one rank has sent to a rank on another host.
struct UsedLink {
  int from_rank = 0, to_rank = 0;
  std::string from, to;  ///< hosts
  double bytes = 0;
  double seconds = 0;  ///< for which the link was busy
};

struct SlowLink {
  std::string host;   ///< the host at one end of all slow links
  std::string other;  ///< the host at the other end; empty: several hosts
  bool sends = false, receives = false;
  std::vector<int> ranks;  ///< ranks of `host` with a slow link
  double rate = 0;         ///< bytes a second
  double others_rate = 0;  ///< bytes a second of the slowest other link
  double seconds = 0;      ///< the longest time that one of the ranks' links was busy
};

/// Finds links with less than half the rate of all other links.  The slow links must have a host in common.  Links that
/// were hardly used do not count.  Nothing: there are no such links.
std::optional<SlowLink> slow_link(std::vector<UsedLink> links);

}  // namespace hvd::launcher

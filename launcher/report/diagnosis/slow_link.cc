#include "launcher/report/diagnosis/slow_link.h"

#include <algorithm>
#include <set>

namespace hvd::launcher {

namespace {

// The kernel counts the busy time in its ticks of 1 to 10 ms.
constexpr double least_bytes = 1 << 20, least_seconds = 0.1;
// A link with little data, compared with the busiest link, carries short messages.  The rate of short messages does not
// show the rate of the link.
constexpr double least_part = 0.25;

double rate_of(const UsedLink& l) { return l.bytes / l.seconds; }

/// The host at one end of all links.  With two such hosts: the sender of the first link.  Empty: no such host.
std::string common_host(const std::vector<UsedLink>& links) {
  for (const std::string& host : {links.front().from, links.front().to})
    if (std::all_of(links.begin(), links.end(), [&](const UsedLink& l) { return l.from == host || l.to == host; }))
      return host;
  return {};
}

SlowLink joined(const std::vector<UsedLink>& links, const std::string& host) {
  SlowLink slow;
  slow.host = host;
  std::set<int> ranks;
  std::set<std::string> others;
  double bytes = 0, seconds = 0;
  for (const UsedLink& l : links) {
    const bool sends = l.from == host;
    slow.sends |= sends, slow.receives |= !sends;
    ranks.insert(sends ? l.from_rank : l.to_rank);
    others.insert(sends ? l.to : l.from);
    bytes += l.bytes, seconds += l.seconds;
    slow.seconds = std::max(slow.seconds, l.seconds);
  }
  slow.ranks.assign(ranks.begin(), ranks.end());
  if (others.size() == 1) slow.other = *others.begin();
  slow.rate = bytes / seconds;
  return slow;
}

}  // namespace

std::optional<SlowLink> slow_link(std::vector<UsedLink> links) {
  double least = least_bytes;
  for (const UsedLink& l : links) least = std::max(least, least_part * l.bytes);
  std::erase_if(links, [least](const UsedLink& l) { return l.bytes < least || l.seconds < least_seconds; });
  std::sort(links.begin(), links.end(), [](const auto& a, const auto& b) { return rate_of(a) < rate_of(b); });
  // A slow network interface also delays acknowledgements.  So data to its host is slow too, but less slow than data
  // from it.
  for (std::size_t n = 1; n < links.size(); ++n) {
    if (2 * rate_of(links[n - 1]) >= rate_of(links[n])) continue;
    const std::vector<UsedLink> slow(links.begin(), links.begin() + static_cast<std::ptrdiff_t>(n));
    const std::string host = common_host(slow);
    if (host.empty()) return {};
    SlowLink found = joined(slow, host);
    found.others_rate = rate_of(links[n]);
    return found;
  }
  return {};
}

}  // namespace hvd::launcher

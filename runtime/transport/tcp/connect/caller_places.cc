#include "transport/tcp/connect/caller_places.h"

#include <netinet/in.h>

#include <algorithm>

namespace hvd::transport::tcp {
namespace {

/// Maximum number of simultaneous calls for one lane.  A rank may call again before this rank sees the end of its last
/// call.
constexpr std::size_t calls_of_a_lane = 2;
/// Minimum limit for an address of the job.  To displace a rank's call, another process at the address must make this
/// number of calls before the rank answers.
constexpr std::size_t fewest = 32;

bool is_loopback(const Address& a) {
  constexpr Address six = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  return a == six || (std::equal(a.begin(), a.begin() + 12, loopback_address.begin()) && a[12] == IN_LOOPBACKNET);
}

}  // namespace

CallerPlaces::CallerPlaces(const LinkPlan& plan) : anywhere_(plan.callers.empty()) {
  const std::vector<Address>& own = plan.at(plan.rank).addresses;
  const bool all_call_loopback = std::find(own.begin(), own.end(), loopback_address) != own.end();
  for (int r = 0; r < plan.size(); ++r) {
    if (r == plan.rank) continue;
    const std::size_t need = calls_of_a_lane * static_cast<std::size_t>(plan.lanes(r));
    if (plan.calls_by_unix_socket(r)) {
      this_host_ += need;
      continue;
    }
    anybody_ += need;
    if (anywhere_) continue;
    bool here = all_call_loopback || plan.same_host(r);
    for (const Address& from : plan.callers[static_cast<std::size_t>(r)]) {
      places_[from] += need;
      const std::vector<Address>& mine = plan.callers[static_cast<std::size_t>(plan.rank)];
      here |= std::find(mine.begin(), mine.end(), from) != mine.end();
    }
    if (here) places_[loopback_address] += need;
  }
  this_host_ = std::max(this_host_, fewest);
}

std::size_t CallerPlaces::of(const Address& source) const {
  if (anywhere_) return std::max(anybody_, fewest);
  const auto found = places_.find(source);
  return found == places_.end() ? 0 : std::max(found->second, fewest);
}

std::optional<Address> source_of(int connection) {
  sockaddr_storage theirs{}, own{};
  socklen_t theirs_bytes = sizeof theirs, own_bytes = sizeof own;
  if (::getpeername(connection, reinterpret_cast<sockaddr*>(&theirs), &theirs_bytes) != 0 ||
      ::getsockname(connection, reinterpret_cast<sockaddr*>(&own), &own_bytes) != 0)
    return std::nullopt;
  const auto from = address_of(reinterpret_cast<const sockaddr*>(&theirs));
  if (!from || is_loopback(*from) || from == address_of(reinterpret_cast<const sockaddr*>(&own)))
    return from ? std::optional(loopback_address) : std::nullopt;
  return from;
}

}  // namespace hvd::transport::tcp

/// @file links_interfaces.cc — lanes to a peer that several network interfaces reach.
///
/// All lanes but the first may end.  Links then connects the lane again.  links_move.cc moves the first lane.
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/log.h"
#include "memory/futex.h"
#include "transport/tcp/connect/links.h"

namespace hvd::transport::tcp {
namespace {

using memory::now_ns;

constexpr unsigned answers_ms = 1800;                  ///< a lane with an acknowledgement within this time answers
constexpr std::int64_t call_again_ns = 5'000'000'000;  ///< delay after a lane has ended, or could not be made
/// Maximum unsent bytes in the kernel for one lane (TCP_NOTSENT_LOWAT).  A small number leaves more bytes for other
/// lanes.
constexpr int most_unsent = 256 << 10;

}  // namespace

void Links::fill(int rank, const std::function<std::optional<OutFrame>(int)>& next) {
  call_spares(rank);
  end_silent(rank);
  Peer& p = peer(rank);
  while (p.lost.empty()) {
    Lane* const lane = lane_with_room(p);
    auto frame = lane ? next(lane->number()) : std::nullopt;
    if (!frame) return;
    lane->add(std::move(*frame));
    if (!lane->watches_out) push(*lane);
  }
}

/// Returns the lane with the fewest unacknowledged bytes; nullptr: no lane has room.  Returns the first lane only if no
/// other lane is established, since the first lane carries small frames.
Lane* Links::lane_with_room(const Peer& p) {
  Lane* best = nullptr;
  int least = 0;
  bool others = false;
  for (auto link = p.links.rbegin(); link != p.links.rend(); ++link) {
    Lane* const lane = link->lane.get();
    if (!lane || lane->interrupted || (lane->number() == 0 && others)) continue;
    others = true;
    int on_its_way = 0;
    if (!lane->nothing_waits()) continue;
    ::ioctl(lane->fd(), SIOCOUTQ, &on_its_way);
    if (best && on_its_way > least) continue;
    best = lane;
    least = on_its_way;
  }
  return best;
}

void Links::call_spares(int rank) {
  Peer& p = peer(rank);
  const std::int64_t now = now_ns();
  for (std::size_t n = 1; n < p.links.size(); ++n) {
    Link& l = p.links[n];
    const LaneName lane{rank, static_cast<int>(n)};
    if (!l.why_not.empty() && !std::exchange(l.told, true))
      log_info(way_text(lane) + " carries no tensors (" + l.why_not + "): the others do");
    if (l.lane || now < l.again_ns) continue;
    l.again_ns = now + call_again_ns;
    dialer_.begin(lane);
  }
}

/// Ends silent lanes to the peer while another lane answers.  After a cable is unplugged, the kernel would wait for the
/// network to return.
void Links::end_silent(int rank) {
  Peer& p = peer(rank);
  const std::int64_t now = now_ns();
  if (now - p.looked_ns < look_ns) return;
  p.looked_ns = now;
  std::vector<std::pair<unsigned, Lane*>> heard;
  for (const Link& l : p.links)
    if (l.lane && !l.lane->interrupted) heard.emplace_back(l.lane->ms_since_heard(), l.lane.get());
  if (std::none_of(heard.begin(), heard.end(), [](const auto& h) { return h.first < answers_ms; })) return;
  for (const auto& [ms, lane] : heard)
    if (ms >= silent_ms && lane->number() > 0) end(*lane, ETIMEDOUT);
}

/// Returns the network that the lane uses; nullptr: only one network interface reaches the peer.
const SharedNetwork* Links::way(LaneName lane) const {
  const std::vector<SharedNetwork>& ways = peers_[static_cast<std::size_t>(lane.peer)]->ways;
  if (ways.empty()) return nullptr;
  if (lane.number == 0) return &ways[peers_[static_cast<std::size_t>(lane.peer)]->first_way];
  return &ways[static_cast<std::size_t>(std::max(0, lane.number - plan_.bulk_lanes))];
}

/// "network interface eth1 (10 Gbit/s) to rank 3 (10.0.0.7)"
std::string Links::way_text(LaneName lane) {
  return "network interface " + to_text(*way(lane)) + " to " + name(lane.peer);
}

void Links::failed(LaneName lane, const std::string& why) {
  if (lane.number == 0 && stands(lane)) return could_not_move(lane.peer, why);
  if (lane.number == 0 || !has_spares(lane.peer)) return lose(lane.peer, why);
  dialer_.end(lane);
  peer(lane.peer).links[static_cast<std::size_t>(lane.number)].fail(why);
}

void Links::Link::fail(const std::string& why) {
  why_not = why;
  again_ns = now_ns() + call_again_ns;
}

/// Prepares a lane that is established, for the first time or again.
void Links::begin_one_of_several(Link& link, LaneName name) {
  link.lane->keeps = name.number == 0;
  if (name.number == 0) return note_way(*link.lane);
  ::setsockopt(link.lane->fd(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &most_unsent, sizeof most_unsent);
  link.why_not.clear();
  if (std::exchange(link.told, false)) log_info(way_text(name) + " carries tensors again");
}

}  // namespace hvd::transport::tcp

/// @file links_move.cc — the first lane to a peer moves to another network, when its own network fails.
///
/// The lower rank of both calls over the other networks, and the higher rank may ask it to.  A call proves the job's
/// key, and that the peer answers.  Both ends then receive all that the former connection holds, and continue over the
/// new one (Lane::resume()).
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "common/log.h"
#include "transport/tcp/connect/links.h"

namespace hvd::transport::tcp {
namespace {

/// True if the network may have ended the connection, and not the peer.
bool is_of_network(int error) {
  return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH || error == ENETDOWN;
}

}  // namespace

void Links::look_at_first_lanes(std::int64_t now) {
  if (now - looked_ns_ < look_ns) return;
  looked_ns_ = now;
  for (const int rank : by_several_) {
    const Lane* const lane = peer(rank).links[0].lane.get();
    if (lane && !lane->interrupted && lane->ms_since_heard() >= silent_ms) move_first(rank);
  }
}

void Links::move_first(int rank) {
  Peer& p = peer(rank);
  if (gone(rank)) return;
  p.links[0].lane->moves = true;
  dialer_.move(rank, p.first_way + 1);
}

/// False: the peer has ended the connection, or has sent bytes that no rank sends.
bool Links::may_move(const Lane& lane, int error) const {
  return lane.keeps && error != EBADMSG && (is_of_network(error) || dialer_.calls({lane.peer(), 0}));
}

/// Stops all use of the connection.  The lane keeps its frames until it has another connection.
void Links::interrupt(Lane& lane) {
  if (std::exchange(lane.interrupted, true)) return;
  calls_.epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, lane.fd(), 0);
  lanes_.erase(lane.fd());
  full_ -= std::exchange(lane.watches_out, false) ? 1 : 0;
}

/// Receives all bytes that the kernel has for the lane: the peer may have dropped them.
void Links::receive_rest(Lane& lane) {
  std::uint64_t before = 0;
  try {
    do before = lane.received();
    while (lane.receive() == 0 && lane.received() != before);
  } catch (const Error& e) { lose(lane.peer(), name(lane.peer()) + ": " + e.what()); }
}

/// The first lane has another connection.
void Links::moved(LaneName name, MadeLink connection) {
  Peer& p = peer(name.peer);
  if (gone(name.peer) || !p.links[0].lane) return;
  Lane& lane = *p.links[0].lane;
  interrupt(lane);
  receive_rest(lane);
  if (gone(name.peer)) return;
  const int fd = connection.fd.get();
  auto stream = make_stream(calls_, fd, std::move(connection.session), std::move(connection.rest));
  lane.resume(std::move(connection.fd), std::move(stream));
  lanes_[fd] = &lane;
  p.moved_by = connection.move;
  note_way(lane);
  log_info(way_text(name) + " carries the small messages now");
  if (calls_.epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, EPOLLIN) != 0) return end(lane, errno);
  serve(lane, lane.pending() ? EPOLLIN : EPOLLOUT);
}

void Links::could_not_move(int rank, const std::string& why) {
  dialer_.end({rank, 0});
  Link& link = peer(rank).links[0];
  link.lane->moves = false;
  if (link.lane->interrupted) lose(rank, name(rank) + " is gone: " + link.why_not + ", and " + why);
}

/// Records the network of the first lane.
void Links::note_way(const Lane& first) {
  Peer& p = peer(first.peer());
  const auto theirs = source_of(first.fd());
  const auto way =
      std::find_if(p.ways.begin(), p.ways.end(), [&](const SharedNetwork& w) { return w.theirs.at == theirs; });
  p.first_way = way == p.ways.end() ? 0 : static_cast<std::size_t>(way - p.ways.begin());
}

}  // namespace hvd::transport::tcp

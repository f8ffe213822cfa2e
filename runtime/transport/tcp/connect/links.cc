#include "transport/tcp/connect/links.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "base/error.h"
#include "memory/futex.h"
#include "transport/tcp/stream/socket_use.h"

namespace hvd::transport::tcp {
namespace {

using memory::now_ns;

Fd open_epoll() {
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) throw Error(Code::unavailable, "epoll", errno_text(errno), "use --transport mpi");
  return epoll;
}

}  // namespace

std::string how_ended(int error) {
  if (error == EBADMSG)
    return "a message on its connection has the wrong seal: the message was changed on the way, or another process "
           "sent it";
  return error < 0 ? "it closed its connection" : "its connection: " + errno_text(error);
}

Links::Links(LinkPlan plan, SocketCalls& calls, LinksUser& user)
    : plan_(std::move(plan)),
      calls_(calls),
      user_(user),
      epoll_(open_epoll()),
      dialer_(plan_, calls_, epoll_.get(), *this),
      peers_(plan_.ranks.size()) {}

// ---- peers

Links::Peer& Links::peer(int rank) {
  auto& p = peers_[static_cast<std::size_t>(rank)];
  if (!p) {
    p = std::make_unique<Peer>();
    p->ways = plan_.ways(rank);
    if (!p->ways.empty()) by_several_.push_back(rank);
    p->links.resize(static_cast<std::size_t>(plan_.bulk_lanes) + std::max<std::size_t>(p->ways.size(), 1));
  }
  return *p;
}

bool Links::gone(int rank) const {
  const auto& p = peers_[static_cast<std::size_t>(rank)];
  return p && (p->departed || !p->lost.empty());
}

std::string Links::why_gone(int rank) const {
  const Peer& p = *peers_[static_cast<std::size_t>(rank)];
  return p.lost.empty() ? "rank " + std::to_string(rank) + " has shut down while this rank waits for it" : p.lost;
}

void Links::said_bye(Lane& lane, std::uint32_t lanes) {
  Peer& p = peer(lane.peer());
  if (lane.said_bye || lanes == 0 || lanes > p.links.size())
    throw Error(Code::internal, "TCP", "a goodbye came that no rank of this version says");
  lane.said_bye = true;
  p.bye_lanes = std::max(p.bye_lanes, lanes);
  if (++p.byes >= p.bye_lanes) depart(lane.peer());  // else frames may still arrive on another lane
}

/// The peer has left in order.
void Links::depart(int rank) {
  peer(rank).departed = true;
  end_calls(rank);
}

void Links::lose(int rank, const std::string& why) {
  Peer& p = peer(rank);
  if (p.lost.empty()) p.lost = why;
  end_calls(rank);
  for (Link& l : p.links) {
    if (!l.lane) continue;
    calls_.epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, l.lane->fd(), 0);
    take_down(l);
  }
  user_.peer_lost(rank);
}

void Links::take_down(Link& link) {
  lanes_.erase(link.lane->fd());
  full_ -= std::exchange(link.lane->watches_out, false) ? 1 : 0;
  user_.lane_ended(*link.lane);
  ended_.push_back(std::move(link.lane));
}

/// False: the lane has ended while it was served, and is now in ended_.
bool Links::is_up(const Lane& lane) const {
  const auto found = lanes_.find(lane.fd());
  return found != lanes_.end() && found->second == &lane;
}

/// Ends this rank's calls to the peer, and drops the frames that wait for connections.
void Links::end_calls(int rank) {
  dialer_.end(rank);
  for (Link& l : peer(rank).links) l.waiting.clear();
}

/// The world is revoked: marks all other ranks as lost, and ends all connections and calls.
void Links::end_all() {
  if (std::exchange(revoked_, true)) return;
  const std::string why = plan_.revocation->why();
  for (int r = 0; r < plan_.size(); ++r)
    if (r != plan_.rank) lose(r, why);
  dialer_.end();
}

// ---- frames

void Links::add(int rank, int number, OutFrame frame) {
  if (gone(rank)) return;  // the previous frame may have found that the peer is gone
  Link& link = peer(rank).links[static_cast<std::size_t>(number)];
  if (link.lane) {
    link.lane->add(std::move(frame));
    if (!link.lane->watches_out) push(*link.lane);
    return;
  }
  link.waiting.push_back(std::move(frame));
  dialer_.begin({rank, number});
}

void Links::push(Lane& lane) {
  if (lane.interrupted) return;
  if (const int error = lane.send()) return end(lane, error);
  watch(lane);
}

void Links::watch(Lane& lane) {
  const bool out = !lane.idle();
  if (out == lane.watches_out || !is_up(lane)) return;
  lane.watches_out = out;
  full_ += out ? 1 : -1;
  if (calls_.epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, lane.fd(), EPOLLIN | (out ? EPOLLOUT : 0u)) != 0) end(lane, errno);
}

std::size_t Links::forget(int rank, std::uint64_t ticket) {
  const auto& p = peers_[static_cast<std::size_t>(rank)];
  std::size_t dropped = 0;
  if (!p) return dropped;
  for (Link& l : p->links) {
    if (l.lane) dropped += l.lane->forget(ticket);
    dropped += std::erase_if(l.waiting, [&](const OutFrame& f) { return f.ticket == ticket; });
  }
  return dropped;
}

void Links::drop_arriving(int rank, const std::function<bool(const FrameHeader&)>& drops) {
  const auto& p = peers_[static_cast<std::size_t>(rank)];
  if (!p) return;
  for (Link& l : p->links)
    if (const FrameHeader* h = l.lane ? l.lane->arriving() : nullptr; h && drops(*h)) l.lane->drop_arriving();
}

// ---- one connection

bool Links::stands(LaneName lane) const {
  const auto& p = peers_[static_cast<std::size_t>(lane.peer)];
  return p && p->links[static_cast<std::size_t>(lane.number)].lane;
}

void Links::made(LaneName name, MadeLink connection) {
  if (connection.move != 0) return moved(name, std::move(connection));
  Link& link = peer(name.peer).links[static_cast<std::size_t>(name.number)];
  auto stream = make_stream(calls_, connection.fd.get(), std::move(connection.session), std::move(connection.rest));
  link.lane =
      std::make_unique<Lane>(calls_, user_, std::move(connection.fd), std::move(stream), name.peer, name.number);
  Lane& lane = *link.lane;
  lane.is_local = connection.is_local;
  lanes_[lane.fd()] = &lane;
  if (has_spares(name.peer)) begin_one_of_several(link, name);
  if (calls_.epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, lane.fd(), EPOLLIN) != 0) return end(lane, errno);
  for (OutFrame& f : std::exchange(link.waiting, {})) lane.add(std::move(f));
  if (leaving_) say_bye(peer(name.peer), link);
  serve(lane, lane.pending() ? EPOLLIN : EPOLLOUT);
}

void Links::serve(Lane& lane, std::uint32_t events) {
  try {
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
      if (const int error = lane.receive()) return end(lane, error);
    if (!lane.idle()) push(lane);
  } catch (const Error& e) { lose(lane.peer(), name(lane.peer()) + ": " + e.what()); }
}

/// Handles the end of a connection.  @p error: a result of Lane::receive() or Lane::send() other than 0.
void Links::end(Lane& lane, int error) {
  if (!is_up(lane)) return;
  Peer& p = peer(lane.peer());
  const bool in_order = lane.said_bye || p.departed;
  if (!in_order && may_move(lane, error)) {
    p.links[0].why_not = how_ended(error);
    interrupt(lane);
    return move_first(lane.peer());
  }
  const bool others_stand = lane.number() > 0 && error != EBADMSG && has_spares(lane.peer());
  if (!in_order && !others_stand) return lose(lane.peer(), name(lane.peer()) + " is gone: " + how_ended(error));
  Link& link = p.links[static_cast<std::size_t>(lane.number())];
  if (!in_order) link.fail(how_ended(error));
  calls_.epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, lane.fd(), 0);
  take_down(link);
  const bool any_up = std::any_of(p.links.begin(), p.links.end(), [](const Link& l) { return l.lane != nullptr; });
  if (p.byes > 0 && !any_up) depart(lane.peer());  // the peer counted a lane that was never established
}

// ---- all together

void Links::progress() {
  if (plan_.revocation && plan_.revocation->raised()) end_all();
  const std::int64_t now = now_ns();
  if (now - moved_ns_ < 500) return;  // one step of the engine may call several times
  moved_ns_ = now;
  if (!by_several_.empty()) look_at_first_lanes(now);
  epoll_event events[32];
  const int count = ::epoll_wait(epoll_.get(), events, 32, 0);
  for (int i = 0; i < count; ++i) {
    const int fd = events[i].data.fd;
    const auto lane = lanes_.find(fd);
    if (lane == lanes_.end()) {
      dialer_.step(fd);
      continue;
    }
    serve(*lane->second, events[i].events);
  }
  dialer_.step_all();
  ended_.clear();
}

bool Links::flush() {
  if (full_ > 0) progress();
  return full_ > 0;
}

void Links::nap(std::int64_t ns) {
  pollfd p{epoll_.get(), POLLIN, 0};
  const timespec limit{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  ::ppoll(&p, 1, &limit, nullptr);
}

/// Waits until the peers' kernels have all bytes.  A socket that is closed with unread bytes resets its connection, and
/// sent bytes may then be lost.
void Links::leave() {
  try {
    moved_ns_ = 0;
    progress();  // accepts waiting calls, so that the callers get a goodbye too
    leaving_ = true;
    for (std::size_t r = 0; r < peers_.size(); ++r)
      if (peers_[r]) say_bye(static_cast<int>(r));
    const std::int64_t end = now_ns() + nanoseconds(plan_.leave_seconds);
    while (!quiet() && now_ns() < end) {
      for (auto& [fd, lane] : std::unordered_map<int, Lane*>(lanes_))
        if (!lane->idle() && !lane->watches_out) push(*lane);
      moved_ns_ = 0;
      progress();
      nap(200'000);
    }
  } catch (const std::exception&) {  // unsent bytes are lost
  }
}

void Links::say_bye(int rank) {
  Peer& p = peer(rank);
  if (!p.ways.empty())  // all large messages have arrived or are abandoned, so the other lanes have nothing to send
    for (std::size_t n = 1; n < p.links.size(); ++n) dialer_.end({rank, static_cast<int>(n)});
  for (Link& l : p.links)
    if (l.lane) say_bye(p, l);
}

/// Says goodbye on an established lane.  The frame's number tells how many lanes get a goodbye.  The number
/// includes lanes that are not established yet.
void Links::say_bye(Peer& p, Link& link) {
  const bool spares = !p.ways.empty();
  if (spares && link.lane->number() > 0) return;
  OutFrame bye;
  bye.header.kind = FrameKind::bye;
  for (const Link& l : p.links) bye.header.number += l.lane || !l.waiting.empty() ? 1 : 0;
  if (spares) bye.header.number = 1;
  link.lane->add(std::move(bye));
}

bool Links::quiet() const {
  if (!dialer_.none()) return false;
  return std::all_of(lanes_.begin(), lanes_.end(), [](const auto& l) {
    int unsent = 0;
    // Bytes written to a unix socket are immediately in the other end's buffer.
    return l.second->nothing_waits() && l.second->idle() &&
           (l.second->is_local || ::ioctl(l.first, SIOCOUTQ, &unsent) != 0 || unsent == 0);
  });
}

// ---- reports

std::vector<LostPeer> Links::lost() const {
  std::vector<LostPeer> lost;
  for (std::size_t r = 0; r < peers_.size(); ++r)
    if (peers_[r] && !peers_[r]->lost.empty()) lost.push_back({static_cast<int>(r), peers_[r]->lost});
  return lost;
}

std::vector<LostPeer> Links::silent() const {
  std::map<int, unsigned> quiet;  // ms, by rank
  for (const auto& [fd, lane] : lanes_) {
    const unsigned ms = lane->ms_since_heard();
    // If spare lanes exist, the other lanes replace a silent lane.  Only the first lane then matters, once it has had
    // time to move.
    const bool several = !peers_[static_cast<std::size_t>(lane->peer())]->ways.empty();
    if (ms < (several ? 2 * silent_ms : silent_ms) || (several && lane->number() > 0)) continue;
    unsigned& longest = quiet[lane->peer()];
    longest = std::max(longest, ms);
  }
  std::vector<LostPeer> told;
  for (const auto& [rank, ms] : quiet)
    told.push_back({rank, name(rank) + " has not answered for " + std::to_string(ms / 100 / 10) + "." +
                              std::to_string(ms / 100 % 10) +
                              " s: is its host or the network to it down?  It is given up after " +
                              std::to_string(given_up_ms / 1000) + " s at the latest"});
  return told;
}

std::vector<LinkUse> Links::links() const {
  std::map<std::pair<int, std::string>, LinkUse> by_way;
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    if (!peers_[r]) continue;
    for (const SharedNetwork& way : peers_[r]->ways)  // lists interfaces without traffic too
      by_way[{static_cast<int>(r), way.own.card}] = {static_cast<int>(r), way.own.card};
  }
  for (const auto& [fd, lane] : lanes_) {
    if (lane->is_local) continue;
    const SocketUse use = socket_use(fd);
    const SharedNetwork* const way = this->way({lane->peer(), lane->number()});
    const std::string card = way ? way->own.card : "";
    LinkUse& link = by_way[{lane->peer(), card}];
    link.peer = lane->peer();
    link.card = card;
    link.bytes += use.acknowledged_bytes;
    link.busy_ns = std::max(link.busy_ns, use.busy_ns);  // lanes of one interface are busy at the same time
    link.round_trip_ns = std::max(link.round_trip_ns, use.round_trip_ns);
  }
  std::vector<LinkUse> links;
  for (auto& [way, link] : by_way) links.push_back(std::move(link));
  return links;
}

std::string Links::revoked() const {
  return plan_.revocation && plan_.revocation->raised() ? plan_.revocation->why() : "";
}

}  // namespace hvd::transport::tcp

#include "transport/tcp/connections.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "base/error.h"
#include "common/log.h"
#include "memory/futex.h"

namespace hvd::transport::tcp {
namespace {

using memory::now_ns;

constexpr unsigned silent_ms = 2500, answers_ms = 1800;
constexpr std::int64_t look_ns = 500'000'000;          ///< between looks for lanes that are silent while others answer
constexpr std::int64_t call_again_ns = 5'000'000'000;  ///< after a spare lane has ended, or could not be made
/// What waits in the kernel for a lane whose peer has others: what is not sent yet can go over these.
constexpr int most_unsent = 256 << 10;

Fd open_epoll() {
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) throw Error(Code::unavailable, "epoll", errno_text(errno), "use --transport mpi");
  return epoll;
}

/// Since something came from the other end's kernel.
unsigned ms_since_heard(int fd) {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  return ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 ? info.tcpi_last_ack_recv : 0;
}

/// @p error: as Lane::receive() has it.
std::string how_ended(int error) {
  if (error == EBADMSG)
    return "bytes came on its connection that it has not encrypted: they were changed on the way, or somebody else "
           "sent them";
  return error < 0 ? "it closed its connection" : "its connection: " + errno_text(error);
}

}  // namespace

Connections::Connections(ConnectionPlan plan, SocketCalls& calls, ConnectionUser& user)
    : plan_(std::move(plan)),
      calls_(calls),
      user_(user),
      epoll_(open_epoll()),
      maker_(plan_, calls_, epoll_.get(), *this),
      peers_(plan_.ranks.size()) {}

// ---- peers

Connections::Peer& Connections::peer(int rank) {
  auto& p = peers_[static_cast<std::size_t>(rank)];
  if (!p) {
    p = std::make_unique<Peer>();
    p->ways = plan_.ways(rank);
    p->links.resize(static_cast<std::size_t>(plan_.bulk_lanes) + std::max<std::size_t>(p->ways.size(), 1));
  }
  return *p;
}

bool Connections::gone(int rank) const {
  const auto& p = peers_[static_cast<std::size_t>(rank)];
  return p && (p->departed || !p->lost.empty());
}

std::string Connections::why_gone(int rank) const {
  const Peer& p = *peers_[static_cast<std::size_t>(rank)];
  return p.lost.empty() ? "rank " + std::to_string(rank) + " has shut down while this rank waits for it" : p.lost;
}

void Connections::said_bye(Lane& lane, std::uint32_t lanes) {
  lane.said_bye = true;
  Peer& p = peer(lane.peer());
  if (++p.byes != lanes) return;  // something may still come on another lane
  if (!p.ways.empty())
    for (Link& l : p.links)
      if (l.lane) l.lane->said_bye = true;
  p.departed = true;
  end_calls(lane.peer());
}

void Connections::lose(int rank, const std::string& why) {
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

void Connections::take_down(Link& link) {
  lanes_.erase(link.lane->fd());
  user_.lane_ended(*link.lane);
  ended_.push_back(std::move(link.lane));
}

/// Nothing more is for that peer.
void Connections::end_calls(int rank) {
  maker_.end(rank);
  for (Link& l : peer(rank).links) l.waiting.clear();
}

/// The world is over.
void Connections::end_all() {
  if (std::exchange(revoked_, true)) return;
  const std::string why = plan_.revocation->why();
  for (int r = 0; r < plan_.size(); ++r)
    if (r != plan_.rank) lose(r, why);
  maker_.end();
}

// ---- frames

void Connections::add(int rank, int number, OutFrame frame) {
  Link& link = peer(rank).links[static_cast<std::size_t>(number)];
  if (link.lane) {
    link.lane->add(std::move(frame));
    if (!link.lane->watches_out) push(*link.lane);
    return;
  }
  link.waiting.push_back(std::move(frame));
  maker_.begin({rank, number});
}

void Connections::push(Lane& lane) {
  if (const int error = lane.send()) return end(lane, error);
  watch(lane);
}

void Connections::watch(Lane& lane) {
  const bool out = !lane.idle();
  if (out == lane.watches_out) return;
  lane.watches_out = out;
  if (calls_.epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, lane.fd(), EPOLLIN | (out ? EPOLLOUT : 0u)) != 0) end(lane, errno);
}

void Connections::forget(int rank, std::uint64_t ticket) {
  const auto& p = peers_[static_cast<std::size_t>(rank)];
  if (!p) return;
  for (Link& l : p->links) {
    if (l.lane) l.lane->forget(ticket);
    std::erase_if(l.waiting, [&](const OutFrame& f) { return f.ticket == ticket; });
  }
}

void Connections::drop_arriving(int rank, const std::function<bool(const FrameHeader&)>& drops) {
  const auto& p = peers_[static_cast<std::size_t>(rank)];
  if (!p) return;
  for (Link& l : p->links)
    if (const FrameHeader* h = l.lane ? l.lane->arriving() : nullptr; h && drops(*h)) l.lane->drop_arriving();
}

// ---- several cards

void Connections::fill(int rank, const std::function<std::optional<OutFrame>(int)>& next) {
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

/// That with the least on its way; nullptr: none has room.  The first lane is for what is small, unless it is the only
/// one.
Lane* Connections::lane_with_room(const Peer& p) {
  Lane* best = nullptr;
  int least = 0;
  bool others = false;
  for (auto link = p.links.rbegin(); link != p.links.rend(); ++link) {
    Lane* const lane = link->lane.get();
    if (!lane || (lane->number() == 0 && others)) continue;
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

void Connections::call_spares(int rank) {
  Peer& p = peer(rank);
  const std::int64_t now = now_ns();
  for (std::size_t n = 1; n < p.links.size(); ++n) {
    Link& l = p.links[n];
    const LaneName lane{rank, static_cast<int>(n)};
    if (!l.why_not.empty() && !std::exchange(l.told, true))
      log_info(way_text(lane) + " carries no tensors (" + l.why_not + "): the others do");
    if (l.lane || now < l.again_ns) continue;
    l.again_ns = now + call_again_ns;
    maker_.begin(lane);
  }
}

/// Lanes of which nothing is heard while others answer: their cable is pulled, and the kernel waits for its return.
void Connections::end_silent(int rank) {
  Peer& p = peer(rank);
  const std::int64_t now = now_ns();
  if (now - p.looked_ns < look_ns) return;
  p.looked_ns = now;
  std::vector<std::pair<unsigned, Lane*>> heard;
  for (const Link& l : p.links)
    if (l.lane) heard.emplace_back(ms_since_heard(l.lane->fd()), l.lane.get());
  if (std::none_of(heard.begin(), heard.end(), [](const auto& h) { return h.first < answers_ms; })) return;
  for (const auto& [ms, lane] : heard)
    if (ms >= silent_ms && lane->number() > 0) end(*lane, ETIMEDOUT);
}

/// "card eth1 (10 Gbit/s) to rank 3 (10.0.0.7)"
std::string Connections::way_text(LaneName lane) {
  const int at = std::max(0, lane.number - plan_.bulk_lanes);
  return "card " + to_text(peer(lane.peer).ways[static_cast<std::size_t>(at)]) + " to " + name(lane.peer);
}

void Connections::failed(LaneName lane, const std::string& why) {
  if (lane.number == 0 || !has_spares(lane.peer)) return lose(lane.peer, why);
  maker_.end(lane);
  Link& l = peer(lane.peer).links[static_cast<std::size_t>(lane.number)];
  l.why_not = why;
  l.again_ns = now_ns() + call_again_ns;
}

// ---- one connection

bool Connections::stands(LaneName lane) const {
  const auto& p = peers_[static_cast<std::size_t>(lane.peer)];
  return p && p->links[static_cast<std::size_t>(lane.number)].lane;
}

void Connections::made(LaneName name, MadeConnection connection) {
  Link& link = peer(name.peer).links[static_cast<std::size_t>(name.number)];
  auto stream = make_stream(calls_, connection.fd.get(), std::move(connection.session), std::move(connection.rest));
  link.lane =
      std::make_unique<Lane>(calls_, user_, std::move(connection.fd), std::move(stream), name.peer, name.number);
  Lane& lane = *link.lane;
  lane.is_local = connection.is_local;
  lanes_[lane.fd()] = &lane;
  if (name.number > 0 && has_spares(name.peer)) {
    ::setsockopt(lane.fd(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &most_unsent, sizeof most_unsent);
    link.why_not.clear();
    if (std::exchange(link.told, false)) log_info(way_text(name) + " carries tensors again");
  }
  if (calls_.epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, lane.fd(), EPOLLIN) != 0) return end(lane, errno);
  for (OutFrame& f : std::exchange(link.waiting, {})) lane.add(std::move(f));
  serve(lane, lane.pending() ? EPOLLIN : EPOLLOUT);
}

void Connections::serve(Lane& lane, std::uint32_t events) {
  try {
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
      if (const int error = lane.receive()) return end(lane, error);
    if (!lane.idle()) push(lane);
  } catch (const Error& e) { lose(lane.peer(), name(lane.peer()) + ": " + e.what()); }
}

/// A connection has ended.
void Connections::end(Lane& lane, int error) {
  const bool others_stand = lane.number() > 0 && error != EBADMSG && has_spares(lane.peer());
  if (!lane.said_bye && !others_stand) return lose(lane.peer(), name(lane.peer()) + " is gone: " + how_ended(error));
  Link& link = peer(lane.peer()).links[static_cast<std::size_t>(lane.number())];
  if (!link.lane) return;
  if (!lane.said_bye) {
    link.why_not = how_ended(error);
    link.again_ns = now_ns() + call_again_ns;
  }
  calls_.epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, lane.fd(), 0);
  take_down(link);
}

// ---- all together

void Connections::progress() {
  if (plan_.revocation && plan_.revocation->raised()) end_all();
  const std::int64_t now = now_ns();
  if (now - moved_ns_ < 500) return;  // several ask in one step of the engine
  moved_ns_ = now;
  epoll_event events[32];
  const int count = ::epoll_wait(epoll_.get(), events, 32, 0);
  for (int i = 0; i < count; ++i) {
    const int fd = events[i].data.fd;
    const auto lane = lanes_.find(fd);
    if (lane == lanes_.end()) {
      maker_.step(fd);
      continue;
    }
    serve(*lane->second, events[i].events);
  }
  maker_.step_all();
  ended_.clear();
}

void Connections::nap(std::int64_t ns) {
  pollfd p{epoll_.get(), POLLIN, 0};
  const timespec limit{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  ::ppoll(&p, 1, &limit, nullptr);
}

/// A socket that is closed while something lies unread resets its connection, and what it has sent may be lost: so it
/// waits until the other end's kernel has all.
void Connections::leave() {
  try {
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
  } catch (const std::exception&) {  // what was on its way is lost
  }
}

void Connections::say_bye(int rank) {
  Peer& p = peer(rank);
  OutFrame bye;
  bye.header.kind = FrameKind::bye;
  if (!p.ways.empty()) {  // large messages have arrived, or were given up: there is nothing to wait for on other lanes
    for (std::size_t n = 1; n < p.links.size(); ++n) maker_.end({rank, static_cast<int>(n)});
    bye.header.number = 1;
    if (p.links[0].lane) p.links[0].lane->add(std::move(bye));
    return;
  }
  for (const Link& l : p.links) bye.header.number += l.lane ? 1 : 0;
  for (Link& l : p.links)
    if (l.lane) {
      OutFrame frame;
      frame.header = bye.header;
      l.lane->add(std::move(frame));
    }
}

bool Connections::quiet() const {
  if (!maker_.none()) return false;
  return std::all_of(lanes_.begin(), lanes_.end(), [](const auto& l) {
    int unsent = 0;
    // What has been written to a unix socket is the other end's.
    return l.second->idle() && (l.second->is_local || ::ioctl(l.first, SIOCOUTQ, &unsent) != 0 || unsent == 0);
  });
}

// ---- what is said of it

std::vector<LostPeer> Connections::lost() const {
  std::vector<LostPeer> lost;
  for (std::size_t r = 0; r < peers_.size(); ++r)
    if (peers_[r] && !peers_[r]->lost.empty()) lost.push_back({static_cast<int>(r), peers_[r]->lost});
  return lost;
}

std::vector<LostPeer> Connections::silent() const {
  std::map<int, unsigned> quiet;  // ms, by rank
  for (const auto& [fd, lane] : lanes_) {
    const unsigned ms = ms_since_heard(fd);
    // Where there are spare lanes, others go on without one that is silent.
    const bool matters = lane->number() == 0 || peers_[static_cast<std::size_t>(lane->peer())]->ways.empty();
    if (ms < silent_ms || !matters) continue;
    unsigned& longest = quiet[lane->peer()];
    longest = std::max(longest, ms);
  }
  std::vector<LostPeer> told;
  for (const auto& [rank, ms] : quiet)
    told.push_back({rank, name(rank) + " has not answered for " + std::to_string(ms / 100 / 10) + "." +
                              std::to_string(ms / 100 % 10) +
                              " s: is its host or the network to it down?  It is given " + "up after " +
                              std::to_string(given_up_ms / 1000) + " s"});
  return told;
}

std::string Connections::revoked() const {
  return plan_.revocation && plan_.revocation->raised() ? plan_.revocation->why() : "";
}

}  // namespace hvd::transport::tcp

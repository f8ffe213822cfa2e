#include "transport/tcp/mesh.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "memory/futex.h"

namespace hvd::transport::tcp {
namespace {

using memory::now_ns;

constexpr std::size_t eager_bytes = 32 << 10;
constexpr std::size_t most_control_bytes = std::size_t{1} << 30;
constexpr std::size_t piece_bytes = 256 << 10;  ///< of a large message, where there are several lanes for it
constexpr std::size_t most_called = 256;        ///< connections that have not proved the key yet
constexpr std::int64_t called_ns = 30'000'000'000;
constexpr unsigned silent_ms = 2500;

std::int64_t nanoseconds(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

Error broken() { return Error(Code::internal, "TCP", "a frame came that no rank of this version sends"); }

}  // namespace

Mesh::Mesh(MeshPlan plan, SocketCalls& calls)
    : plan_(std::move(plan)),
      calls_(calls),
      own_addresses_(plan_.ranks[static_cast<std::size_t>(plan_.rank)].addresses),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      peers_(plan_.ranks.size()) {
  if (plan_.listener) context_.emplace(plan_.key);
  for (const int listener : {plan_.listener.get(), plan_.local ? plan_.local->fd() : -1})
    if (!epoll_ || (listener >= 0 && calls_.epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener, EPOLLIN) != 0))
      throw Error(Code::unavailable, "epoll", errno_text(errno), "use --transport mpi");
}

/// A socket that is closed while something lies unread resets its connection, and what it has sent may be lost: so it
/// waits until the other end's kernel has all.
Mesh::~Mesh() {
  try {
    for (auto& p : peers_)
      if (p) say_bye(*p);
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

void Mesh::say_bye(Peer& p) {
  OutFrame bye;
  bye.header.kind = FrameKind::bye;
  for (const Link& l : p.links) bye.header.number += l.lane ? 1 : 0;
  for (Link& l : p.links)
    if (l.lane) {
      OutFrame frame;
      frame.header = bye.header;
      l.lane->add(std::move(frame));
    }
}

bool Mesh::quiet() const {
  if (!calling_.empty()) return false;
  return std::all_of(lanes_.begin(), lanes_.end(), [](const auto& l) {
    int unsent = 0;
    // What has been written to a unix socket is the other end's.
    return l.second->idle() && (l.second->is_local || ::ioctl(l.first, SIOCOUTQ, &unsent) != 0 || unsent == 0);
  });
}

// ---- messages

Ticket Mesh::keep(Request r) {
  r.used = true;
  if (free_.empty()) {
    requests_.push_back(r);
    return requests_.size();
  }
  const Ticket t = free_.back();
  free_.pop_back();
  request(t) = r;
  return t;
}

void Mesh::release(Ticket ticket) {
  request(ticket).used = false;
  free_.push_back(ticket);
}

bool Mesh::gone(int rank) const {
  const auto& p = peers_[static_cast<std::size_t>(rank)];
  return p && (p->departed || !p->lost.empty());
}

std::string Mesh::why_gone(int rank) const {
  const Peer& p = *peers_[static_cast<std::size_t>(rank)];
  return p.lost.empty() ? "rank " + std::to_string(rank) + " has shut down while this rank waits for it" : p.lost;
}

Ticket Mesh::send(const Channel& to, const void* data, std::size_t bytes) {
  if (gone(to.peer) && is_control(to.tag)) return 0;
  Outgoing& out = outgoing_[to];
  Request r;
  r.sends = true;
  r.channel = to;
  r.number = out.next++;
  r.left = 1;
  r.data = static_cast<const char*>(data);
  r.bytes = bytes;
  const Ticket t = keep(r);
  if (gone(to.peer)) return t;
  if (bytes > eager_bytes && !is_control(to.tag)) {
    if (out.room.erase(r.number) > 0)
      send_large(t);
    else
      out.waiting.emplace(r.number, t);
    return t;
  }
  OutFrame frame;
  frame.header = {
      FrameKind::message, static_cast<std::uint8_t>(to.tag), static_cast<std::uint16_t>(to.stream), r.number, 0, bytes};
  frame.data = r.data;
  frame.ticket = t;
  add(to.peer, 0, std::move(frame));
  return t;
}

void Mesh::send_large(Ticket ticket) {
  const Request r = request(ticket);
  const auto lanes = static_cast<std::size_t>(plan_.bulk_lanes);
  const std::size_t piece = lanes == 1 ? r.bytes : piece_bytes;
  request(ticket).left = (r.bytes + piece - 1) / piece;
  for (std::size_t at = 0, k = r.number; at < r.bytes; at += piece, ++k) {
    OutFrame frame;
    frame.header = {FrameKind::piece,
                    static_cast<std::uint8_t>(r.channel.tag),
                    static_cast<std::uint16_t>(r.channel.stream),
                    r.number,
                    at,
                    std::min(piece, r.bytes - at)};
    frame.data = r.data + at;
    frame.ticket = ticket;
    add(r.channel.peer, 1 + static_cast<int>(k % lanes), std::move(frame));
  }
}

Ticket Mesh::receive(const Channel& from, void* data, std::size_t bytes) {
  Incoming& in = incoming_[from];
  const std::uint32_t number = in.next++;
  if (auto early = in.early.find(number); early != in.early.end()) {
    if (early->second.size() != bytes) throw broken();
    std::memcpy(data, early->second.data(), bytes);
    in.early.erase(early);
    return 0;
  }
  Request r;
  r.channel = from;
  r.number = number;
  r.left = bytes;
  r.bytes = bytes;
  const Ticket t = keep(r);
  in.posted[number] = {static_cast<unsigned char*>(data), bytes, bytes, t};
  if (bytes > eager_bytes && !gone(from.peer)) {
    OutFrame frame;
    frame.header = {
        FrameKind::room, static_cast<std::uint8_t>(from.tag), static_cast<std::uint16_t>(from.stream), number, 0, 0};
    add(from.peer, 0, std::move(frame));
  }
  return t;
}

bool Mesh::test(Ticket ticket) {
  if (ticket == 0) return true;
  const auto done = [&] {
    const Request& r = request(ticket);
    return r.sends ? r.left == 0 : incoming_[r.channel].posted.count(r.number) == 0;
  };
  if (!done()) {
    progress();
    if (!done()) {
      if (gone(request(ticket).channel.peer)) throw Error(Code::peer_lost, "", why_gone(request(ticket).channel.peer));
      return false;
    }
  }
  release(ticket);
  return true;
}

void Mesh::abandon(Ticket ticket) {
  if (ticket == 0 || !request(ticket).used) return;
  const Request r = request(ticket);
  release(ticket);
  auto& p = peers_[static_cast<std::size_t>(r.channel.peer)];
  if (!r.sends) {
    auto& posted = incoming_[r.channel].posted;
    const auto it = posted.find(r.number);
    if (it == posted.end()) return;
    it->second.data = nullptr;
    it->second.ticket = 0;
    if (!p) return;
    for (Link& l : p->links)
      if (const FrameHeader* h = l.lane ? l.lane->arriving() : nullptr;
          h && h->tag == static_cast<std::uint8_t>(r.channel.tag) && h->stream == r.channel.stream &&
          h->number == r.number)
        l.lane->drop_arriving();
    return;
  }
  outgoing_[r.channel].waiting.erase(r.number);
  if (!p) return;
  for (Link& l : p->links) {
    if (l.lane) l.lane->forget(ticket);
    std::erase_if(l.waiting, [&](const OutFrame& f) { return f.ticket == ticket; });
  }
}

std::optional<Message> Mesh::poll(int stream, Tag tag) {
  auto& box = inbox_[{stream, tag}];
  if (box.empty()) progress();
  if (box.empty()) return std::nullopt;
  Message m = std::move(box.front());
  box.pop_front();
  return m;
}

void Mesh::forget(int stream) {
  std::erase_if(inbox_, [&](const auto& box) { return box.first.first == stream; });
  for (auto& [channel, in] : incoming_)
    if (channel.stream == stream) in.early.clear();
}

// ---- frames

unsigned char* Mesh::place(Lane& lane, const FrameHeader& h) {
  const Channel channel{lane.peer(), h.stream, static_cast<Tag>(h.tag)};
  if (h.kind == FrameKind::bye || h.kind == FrameKind::room) {
    if (h.bytes != 0) throw broken();
    return nullptr;
  }
  const auto into_string = [&](std::size_t most) {
    if (h.bytes > most) throw broken();
    std::string& body = arriving_[&lane];
    body.assign(h.bytes, 0);
    return reinterpret_cast<unsigned char*>(body.data());
  };
  if (h.kind == FrameKind::message && is_control(channel.tag)) return into_string(most_control_bytes);
  auto& in = incoming_[channel];
  const auto it = in.posted.find(h.number);
  if (h.kind == FrameKind::message && it == in.posted.end()) return into_string(eager_bytes);
  if ((h.kind != FrameKind::message && h.kind != FrameKind::piece) || it == in.posted.end()) throw broken();
  const Posted& posted = it->second;
  if (h.at > posted.bytes || h.bytes > posted.bytes - h.at || h.bytes > posted.left ||
      (h.kind == FrameKind::message && h.bytes != posted.bytes))
    throw Error(Code::internal, "TCP", "a message has another length than its receive");
  return posted.data ? posted.data + h.at : nullptr;
}

void Mesh::arrived(Lane& lane, const FrameHeader& h) {
  const Channel channel{lane.peer(), h.stream, static_cast<Tag>(h.tag)};
  switch (h.kind) {
    case FrameKind::bye:
      lane.said_bye = true;
      if (++peer(lane.peer()).byes == h.number) {  // else something may still come on another lane
        peer(lane.peer()).departed = true;
        end_calls(lane.peer());
      }
      return;
    case FrameKind::room: {
      Outgoing& out = outgoing_[channel];
      const auto waits = out.waiting.find(h.number);
      if (waits == out.waiting.end()) {
        out.room.insert(h.number);
        return;
      }
      const Ticket ticket = waits->second;
      out.waiting.erase(waits);
      send_large(ticket);
      return;
    }
    case FrameKind::message:
      if (const auto body = arriving_.find(&lane); body != arriving_.end()) {
        if (is_control(channel.tag))
          inbox_[{h.stream, channel.tag}].push_back({lane.peer(), std::move(body->second)});
        else
          incoming_[channel].early[h.number] = std::move(body->second);
        arriving_.erase(body);
        // The receive may have been posted while the message was arriving.
        if (!is_control(channel.tag)) {
          Incoming& in = incoming_[channel];
          if (const auto it = in.posted.find(h.number); it != in.posted.end()) {
            const std::string text = std::move(in.early[h.number]);
            in.early.erase(h.number);
            if (it->second.bytes != text.size()) throw broken();
            if (it->second.data) std::memcpy(it->second.data, text.data(), text.size());
            in.posted.erase(it);
          }
        }
        return;
      }
      [[fallthrough]];
    case FrameKind::piece: {
      Incoming& in = incoming_[channel];
      const auto it = in.posted.find(h.number);
      if (it == in.posted.end()) throw broken();
      it->second.left -= h.bytes;
      if (it->second.left == 0) in.posted.erase(it);
      return;
    }
  }
  throw broken();
}

void Mesh::left(const OutFrame& frame) {
  if (frame.ticket != 0 && request(frame.ticket).left > 0) --request(frame.ticket).left;
}

// ---- connections

Mesh::Peer& Mesh::peer(int rank) {
  auto& p = peers_[static_cast<std::size_t>(rank)];
  if (!p) {
    p = std::make_unique<Peer>();
    p->links.resize(static_cast<std::size_t>(1 + plan_.bulk_lanes));
  }
  return *p;
}

void Mesh::add(int rank, int number, OutFrame frame) {
  Link& link = peer(rank).links[static_cast<std::size_t>(number)];
  if (link.lane) {
    link.lane->add(std::move(frame));
    if (!link.lane->watches_out) push(*link.lane);
    return;
  }
  link.waiting.push_back(std::move(frame));
  if (calling_.emplace(rank, number).second) {
    link.end_ns = now_ns() + nanoseconds(plan_.limit_seconds);
    call(rank, number);
  }
}

void Mesh::push(Lane& lane) {
  if (const int error = lane.send()) return end(lane, error);
  watch(lane);
}

void Mesh::watch(Lane& lane) {
  const bool out = !lane.idle();
  if (out == lane.watches_out) return;
  lane.watches_out = out;
  if (calls_.epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, lane.fd(), EPOLLIN | (out ? EPOLLOUT : 0u)) != 0) end(lane, errno);
}

void Mesh::call(int rank, int number) {
  Link& link = peer(rank).links[static_cast<std::size_t>(number)];
  const ListenAddress& there = plan_.ranks[static_cast<std::size_t>(rank)];
  std::vector<CallAddress> addresses;
  const bool same_host =
      plan_.hosts[static_cast<std::size_t>(rank)] == plan_.hosts[static_cast<std::size_t>(plan_.rank)];
  if (same_host && !there.path.empty()) addresses.push_back(call_address(there.path));
  if (there.port != 0 && context_ && addresses.empty()) {
    if (same_host) addresses.push_back(call_address(loopback_address, there.port));
    for (const Address& a : by_nearness(there, own_addresses_)) addresses.push_back(call_address(a, there.port));
  }
  if (addresses.empty()) return lose(rank, name(rank) + " has no address that others can reach");
  const Caller caller{static_cast<std::uint32_t>(plan_.rank), static_cast<std::uint32_t>(rank),
                      static_cast<std::uint32_t>(number), there.world};
  const KeyContext* const context = context_ ? &*context_ : nullptr;
  link.connecting = std::make_unique<Connecting>(calls_, context, caller, std::move(addresses), now_ns());
  link.again_ns = 0;
  if (watch(link, EPOLL_CTL_ADD)) step(*link.connecting, rank, number);
}

/// False where epoll does not take it: the call begins anew soon.
bool Mesh::watch(Link& link, int what) {
  const Connecting& c = *link.connecting;
  if (c.fd() < 0 || calls_.epoll_ctl(epoll_.get(), what, c.fd(), c.events()) == 0) return true;
  link.why = "epoll: " + errno_text(errno);
  link.connecting.reset();
  link.again_ns = now_ns() + nanoseconds(plan_.again_seconds);
  return false;
}

/// We call: one step of it, and what follows from that.
void Mesh::step(Connecting& c, int rank, int number) {
  Link& link = peer(rank).links[static_cast<std::size_t>(number)];
  switch (c.step()) {
    case Connecting::State::welcome:
      return establish(c, rank, number);
    case Connecting::State::duplicate:  // the peer's call is on its way to us; else we call again
      link.connecting.reset();
      link.again_ns = now_ns() + nanoseconds(40 * plan_.again_seconds);
      return;
    case Connecting::State::failed:
      link.why = c.why();
      link.again_ns = now_ns() + nanoseconds(plan_.again_seconds);
      return;
    case Connecting::State::introduced:
    case Connecting::State::under_way:
      watch(link, EPOLL_CTL_MOD);
  }
}

/// Calls that have failed go to the next address, and end at last.
void Mesh::step_calls() {
  const std::int64_t now = now_ns();
  for (const auto& [rank, number] : std::set<std::pair<int, int>>(calling_)) {
    if (gone(rank)) continue;
    Link& link = peer(rank).links[static_cast<std::size_t>(number)];
    if (now > link.end_ns) {
      lose(rank, why_not(rank));
      continue;
    }
    if (link.connecting && link.again_ns == 0 && !link.connecting->too_slow(now)) continue;
    if (link.again_ns > now) continue;
    if (!link.connecting) {
      call(rank, number);
      continue;
    }
    if (link.again_ns == 0) link.why = "no answer";
    link.again_ns = 0;
    link.connecting->next(now);
    if (watch(link, EPOLL_CTL_ADD)) step(*link.connecting, rank, number);
  }
  for (auto it = called_.begin(); it != called_.end();)
    it = now > it->second.end_ns ? called_.erase(it) : std::next(it);
}

void Mesh::accept(int listener, bool is_local) {
  for (;;) {
    Fd fd(calls_.accept(listener));
    if (!fd) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return;  // EAGAIN; where descriptors are short, the caller tries again
    }
    if (called_.size() >= most_called || (is_local && !is_of_this_user(fd.get()))) continue;
    const int number = fd.get();
    Called called{std::make_unique<Connecting>(calls_, is_local ? nullptr : &*context_, std::move(fd)),
                  now_ns() + called_ns};
    if (calls_.epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, number, called.connecting->events()) == 0)
      called_[number] = std::move(called);
  }
}

Welcome Mesh::decide(const Caller& caller) {
  if (caller.to != static_cast<std::uint32_t>(plan_.rank) || caller.from >= peers_.size() || caller.from == caller.to ||
      caller.lane > static_cast<std::uint32_t>(plan_.bulk_lanes) ||
      caller.world != plan_.ranks[static_cast<std::size_t>(plan_.rank)].world)
    return Welcome::stranger;
  const auto from = static_cast<int>(caller.from);
  if (gone(from)) return Welcome::stranger;
  const Link& link = peer(from).links[caller.lane];
  if (link.lane || (link.connecting && plan_.rank < from)) return Welcome::duplicate;
  return Welcome::yes;
}

void Mesh::step_called(int fd) {
  Connecting& c = *called_.at(fd).connecting;
  Connecting::State state = c.step();
  if (state == Connecting::State::introduced) {
    c.answer(decide(c.caller()));
    state = c.step();
  }
  if (state == Connecting::State::welcome)
    establish(c, static_cast<int>(c.caller().from), static_cast<int>(c.caller().lane));
  if (state != Connecting::State::under_way || c.fd() < 0 ||
      calls_.epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, c.events()) != 0)
    called_.erase(fd);
}

void Mesh::establish(Connecting& c, int rank, int number) {
  Link& link = peer(rank).links[static_cast<std::size_t>(number)];
  const std::string rest = c.rest();
  const bool is_local = c.is_local();
  link.lane = std::make_unique<Lane>(calls_, *this, c.take_fd(), rank, number);
  link.lane->is_local = is_local;
  link.connecting.reset();
  calling_.erase({rank, number});
  Lane& lane = *link.lane;
  lanes_[lane.fd()] = &lane;
  if (calls_.epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, lane.fd(), EPOLLIN) != 0) return end(lane, errno);
  for (OutFrame& f : std::exchange(link.waiting, {})) lane.add(std::move(f));
  if (!rest.empty()) lane.begin_with(rest);
  push(lane);
}

void Mesh::serve(Lane& lane, std::uint32_t events) {
  if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
    if (const int error = lane.receive()) return end(lane, error);
  if (!lane.idle()) push(lane);
}

/// A connection has ended.
void Mesh::end(Lane& lane, int error) {
  Peer& p = peer(lane.peer());
  if (!lane.said_bye)
    return lose(lane.peer(), name(lane.peer()) + " is gone: " +
                                 (error < 0 ? "it closed its connection" : "its connection: " + errno_text(error)));
  Link& link = p.links[static_cast<std::size_t>(lane.number())];
  lanes_.erase(lane.fd());
  arriving_.erase(&lane);
  if (link.lane) ended_.push_back(std::move(link.lane));
}

void Mesh::lose(int rank, const std::string& why) {
  Peer& p = peer(rank);
  if (p.lost.empty()) p.lost = why;
  end_calls(rank);
  for (Link& l : p.links) {
    if (!l.lane) continue;
    lanes_.erase(l.lane->fd());
    arriving_.erase(l.lane.get());
    calls_.epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, l.lane->fd(), 0);
    ended_.push_back(std::move(l.lane));
  }
  for (Request& r : requests_)  // nobody waits for what a control stream would have carried
    if (r.used && r.sends && r.channel.peer == rank && is_control(r.channel.tag)) r.left = 0;
}

/// Nothing more is for that peer.
void Mesh::end_calls(int rank) {
  Peer& p = peer(rank);
  for (std::size_t i = 0; i < p.links.size(); ++i) {
    calling_.erase({rank, static_cast<int>(i)});
    p.links[i].connecting.reset();
    p.links[i].waiting.clear();
  }
}

std::string Mesh::why_not(int rank) {
  for (const Link& l : peer(rank).links)
    if (!l.why.empty()) return name(rank) + " cannot be reached: " + l.why;
  return name(rank) + " cannot be reached: no answer";
}

std::string Mesh::name(int rank) const {
  const ListenAddress& there = plan_.ranks[static_cast<std::size_t>(rank)];
  return "rank " + std::to_string(rank) + (there.addresses.empty() ? "" : " (" + to_text(there.addresses[0]) + ")");
}

/// The world is over.
void Mesh::end_all() {
  if (std::exchange(revoked_, true)) return;
  const std::string why = plan_.revocation->why();
  for (std::size_t r = 0; r < peers_.size(); ++r)
    if (static_cast<int>(r) != plan_.rank) lose(static_cast<int>(r), why);
  called_.clear();
  plan_.listener.reset();
  plan_.local.reset();
}

void Mesh::progress() {
  if (plan_.revocation && plan_.revocation->raised()) end_all();
  const std::int64_t now = now_ns();
  if (now - moved_ns_ < 500) return;  // several ask in one step of the engine
  moved_ns_ = now;
  epoll_event events[32];
  const int count = ::epoll_wait(epoll_.get(), events, 32, 0);
  for (int i = 0; i < count; ++i) {
    const int fd = events[i].data.fd;
    if (fd == plan_.listener.get()) {
      accept(fd, false);
    } else if (plan_.local && fd == plan_.local->fd()) {
      accept(fd, true);
    } else if (const auto lane = lanes_.find(fd); lane != lanes_.end()) {
      Lane& l = *lane->second;
      const int rank = l.peer();
      try {
        serve(l, events[i].events);
      } catch (const Error& e) { lose(rank, name(rank) + ": " + e.what()); }
    } else if (called_.count(fd) > 0) {
      step_called(fd);
    } else {
      for (const auto& [rank, number] : std::set<std::pair<int, int>>(calling_)) {
        Link& link = peer(rank).links[static_cast<std::size_t>(number)];
        if (link.connecting && link.connecting->fd() == fd) step(*link.connecting, rank, number);
      }
    }
  }
  if (!calling_.empty() || !called_.empty()) step_calls();
  ended_.clear();
}

void Mesh::nap(std::int64_t ns) {
  pollfd p{epoll_.get(), POLLIN, 0};
  const timespec limit{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  ::ppoll(&p, 1, &limit, nullptr);
}

std::vector<LostPeer> Mesh::lost() const {
  std::vector<LostPeer> lost;
  for (std::size_t r = 0; r < peers_.size(); ++r)
    if (peers_[r] && !peers_[r]->lost.empty()) lost.push_back({static_cast<int>(r), peers_[r]->lost});
  return lost;
}

std::vector<LostPeer> Mesh::silent() const {
  std::map<int, unsigned> quiet;  // ms, by rank
  for (const auto& [fd, lane] : lanes_) {
    tcp_info info{};
    socklen_t bytes = sizeof info;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 || info.tcpi_last_ack_recv < silent_ms) continue;
    unsigned& longest = quiet[lane->peer()];
    longest = std::max<unsigned>(longest, info.tcpi_last_ack_recv);
  }
  std::vector<LostPeer> told;
  for (const auto& [rank, ms] : quiet)
    told.push_back({rank, name(rank) + " has not answered for " + std::to_string(ms / 100 / 10) + "." +
                              std::to_string(ms / 100 % 10) +
                              " s: is its host or the network to it down?  It is given " + "up after " +
                              std::to_string(given_up_ms / 1000) + " s"});
  return told;
}

std::string Mesh::revoked() const {
  return plan_.revocation && plan_.revocation->raised() ? plan_.revocation->why() : "";
}

int Mesh::connections() const { return static_cast<int>(lanes_.size()); }

}  // namespace hvd::transport::tcp

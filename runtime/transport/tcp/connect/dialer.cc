#include "transport/tcp/connect/dialer.h"

#include <sys/epoll.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/load.h"
#include "base/process/process.h"
#include "memory/futex.h"

namespace hvd::transport::tcp {
namespace {

using memory::now_ns;

constexpr std::int64_t speaks_within_ns = 200'000'000;  ///< a silent caller that is younger may be a rank
constexpr int most_accepted = 64;                       ///< calls accepted at once, before other events are handled
constexpr double most_seconds_of_a_spare = 4;           ///< limit for a call over a further network interface
constexpr std::int64_t load_known_ns = 1'000'000'000;   ///< maximum age of handshake_ns_

/// Maximum number of callers in their handshake.  A quarter of the descriptor limit, since the program needs
/// descriptors too.
std::size_t most_called() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 256;
  return static_cast<std::size_t>(std::clamp<rlim_t>(limit.rlim_cur / 4, 64, 4096));
}

}  // namespace

Dialer::Dialer(LinkPlan& plan, SocketCalls& calls, int epoll, CallUser& user)
    : plan_(plan), calls_(calls), epoll_(epoll), user_(user), places_(plan) {
  if (plan_.listener) context_.emplace(plan_.key);
  for (const int listener : {plan_.listener.get(), plan_.local ? plan_.local->fd() : -1})
    if (listener >= 0 && calls_.epoll_ctl(epoll_, EPOLL_CTL_ADD, listener, EPOLLIN) != 0)
      throw Error(Code::unavailable, "epoll", errno_text(errno), "use --transport mpi");
}

// ---- this rank calls

void Dialer::begin(LaneName lane) {
  const auto [it, fresh] = calling_.try_emplace(lane);
  if (!fresh) return;
  const bool spare = lane.number > 0 && !plan_.ways(lane.peer).empty();
  it->second.end_ns =
      now_ns() + nanoseconds(spare ? std::min(plan_.limit_seconds, most_seconds_of_a_spare) : plan_.limit_seconds);
  call(lane);
}

void Dialer::move(int peer, std::size_t way) {
  const auto [it, fresh] = calling_.try_emplace({peer, 0});
  if (!fresh) return;
  const std::int64_t now = now_ns();
  it->second.end_ns = now + handshake_ns(now);
  it->second.moves = true;
  it->second.way = way;
  call({peer, 0});
}

std::vector<CallAddress> Dialer::addresses(LaneName lane, const Call& call) const {
  const ListenAddress& there = plan_.at(lane.peer);
  const bool same_host = plan_.same_host(lane.peer);
  if (same_host && !there.path.empty()) return {call_address(there.path)};
  std::vector<CallAddress> all;
  if (there.port == 0 || !context_) return all;
  if (same_host) all.push_back(call_address(loopback_address, there.port));
  const std::vector<SharedNetwork> ways = plan_.ways(lane.peer);
  const auto add = [&](const SharedNetwork& way) {
    all.push_back(call_address(way.theirs.at, there.port));
    all.back().card = way.own.card;
  };
  if (call.moves) {
    for (std::size_t i = 0; i < ways.size(); ++i) add(ways[(call.way + i) % ways.size()]);
  } else if (lane.number > 0 && !ways.empty()) {  // only over the lane's own network interface
    add(ways[static_cast<std::size_t>(std::max(0, lane.number - plan_.bulk_lanes))]);
  } else {
    if (!ways.empty()) all.push_back(call_address(ways[0].theirs.at, there.port));
    for (const Address& a : by_nearness(there, plan_.at(plan_.rank).addresses))
      if (ways.empty() || a != ways[0].theirs.at) all.push_back(call_address(a, there.port));
  }
  return all;
}

void Dialer::call(LaneName lane) {
  Call& c = calling_.at(lane);
  std::vector<CallAddress> addresses = this->addresses(lane, c);
  if (addresses.empty()) return user_.failed(lane, plan_.name(lane.peer) + " has no address that others can reach");
  std::uint64_t move = 0;
  if (c.moves) move = plan_.rank < lane.peer ? ++move_ : user_.moved_by(lane.peer);
  const Caller caller{static_cast<std::uint32_t>(plan_.rank),
                      static_cast<std::uint32_t>(lane.peer),
                      static_cast<std::uint32_t>(lane.number),
                      plan_.encrypts,
                      plan_.at(lane.peer).world,
                      move};
  const KeyContext* const context = context_ ? &*context_ : nullptr;
  const std::int64_t now = now_ns();
  c.pending = std::make_unique<PendingLink>(calls_, context, caller, std::move(addresses), now, handshake_ns(now));
  c.again_ns = 0;
  if (watch(c, EPOLL_CTL_ADD)) step(lane);
}

/// Lets epoll watch the call.  False: epoll has refused, and the call begins again soon.
bool Dialer::watch(Call& call, int what) {
  const PendingLink& c = *call.pending;
  if (c.fd() < 0 || calls_.epoll_ctl(epoll_, what, c.fd(), c.events()) == 0) return true;
  call.why = "epoll: " + errno_text(errno);
  give_up(call);
  call.again_ns = now_ns() + nanoseconds(plan_.again_seconds);
  return false;
}

void Dialer::give_up(Call& call) {
  call.reached |= call.pending->reached();
  call.pending.reset();
}

/// Returns the time limit for a handshake that begins now.
std::int64_t Dialer::handshake_ns(std::int64_t now) {
  if (handshake_ns_ == 0 || now - looked_ns_ > load_known_ns) {
    handshake_ns_ = nanoseconds(plan_.handshake_seconds * load_factor());
    looked_ns_ = now;
  }
  return handshake_ns_;
}

void Dialer::step(LaneName lane) {
  Call& call = calling_.at(lane);
  switch (call.pending->step()) {
    case PendingLink::State::welcome: {
      const auto pending = std::move(call.pending);
      return made(lane, *pending);
    }
    case PendingLink::State::duplicate:  // the peer calls this rank; if that call fails, this rank calls again
      give_up(call);
      call.again_ns = now_ns() + nanoseconds(40 * plan_.again_seconds);
      return;
    case PendingLink::State::failed:
      call.why = call.pending->why();
      call.again_ns = now_ns() + nanoseconds(plan_.again_seconds);
      return;
    case PendingLink::State::introduced:
    case PendingLink::State::under_way:
      watch(call, EPOLL_CTL_MOD);
  }
}

void Dialer::step_all() {
  const std::int64_t now = now_ns();
  std::vector<LaneName> lanes;  // a copy, because calling_ changes in the loop
  for (const auto& [lane, call] : calling_) lanes.push_back(lane);
  for (const LaneName lane : lanes) {
    const auto it = calling_.find(lane);
    if (it == calling_.end()) continue;
    Call& c = it->second;
    if (now > c.end_ns) {
      user_.failed(lane, why_not(lane.peer));
      continue;
    }
    if (c.pending && c.again_ns == 0 && !c.pending->too_slow(now)) continue;
    if (c.again_ns > now) continue;
    if (!c.pending) {
      call(lane);
      continue;
    }
    if (c.again_ns == 0) c.why = c.pending->what_is_slow();
    c.again_ns = 0;
    c.pending->next(now);
    if (watch(c, EPOLL_CTL_ADD)) step(lane);
  }
  if (called_.empty()) return;
  const std::int64_t limit = handshake_ns(now);
  std::erase_if(called_, [&](const auto& called) { return now - called.second.since_ns > limit; });
}

void Dialer::made(LaneName lane, PendingLink& c) {
  calling_.erase(lane);
  MadeLink made;
  made.is_local = c.is_local();
  made.rest = c.rest();
  made.move = c.caller().move;
  if (plan_.encrypts && !made.is_local) made.session = c.take_session();
  made.fd = c.take_fd();
  user_.made(lane, std::move(made));
}

std::string Dialer::why_not(int peer) const {
  for (auto it = calling_.lower_bound({peer, 0}); it != calling_.end() && it->first.peer == peer; ++it)
    if (!it->second.why.empty()) return plan_.name(peer) + " cannot be reached: " + it->second.why;
  return plan_.name(peer) + " cannot be reached: no answer";
}

bool Dialer::reached(int peer) const {
  for (auto it = calling_.lower_bound({peer, 0}); it != calling_.end() && it->first.peer == peer; ++it)
    if (it->second.reached || (it->second.pending && it->second.pending->reached())) return true;
  return false;
}

bool Dialer::none() const {
  const std::int64_t now = now_ns();
  return calling_.empty() && std::none_of(called_.begin(), called_.end(), [&](const auto& called) {
           return called.second.pending->has_begun() || now - called.second.since_ns < speaks_within_ns;
         });
}

void Dialer::end(int peer) {
  std::erase_if(calling_, [peer](const auto& call) { return call.first.peer == peer; });
}

void Dialer::end() {
  calling_.clear();
  called_.clear();
  plan_.listener.reset();
  plan_.local.reset();
}

// ---- this rank is called

bool Dialer::step(int fd) {
  if (fd == plan_.listener.get()) {
    accept(fd, false);
  } else if (plan_.local && fd == plan_.local->fd()) {
    accept(fd, true);
  } else if (called_.count(fd) > 0) {
    step_called(fd);
  } else {
    for (const auto& [lane, call] : calling_)
      if (call.pending && call.pending->fd() == fd) {
        step(LaneName(lane));
        return true;
      }
    return false;
  }
  return true;
}

void Dialer::accept(int listener, bool is_local) {
  const auto is_open = [&] {
    return listener == (is_local ? plan_.local ? plan_.local->fd() : -1 : plan_.listener.get());
  };
  for (int i = 0; i < most_accepted && is_open(); ++i) {
    Fd fd(calls_.accept(listener));
    if (fd) {
      const int number = fd.get();
      if (take_in(std::move(fd), is_local)) step_called(number);  // a rank usually has sent bytes already
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if ((errno == EMFILE || errno == ENFILE) && drop_one(nullptr)) continue;
    return;  // EAGAIN, or no free descriptors: the calling rank tries again
  }
}

/// Starts the handshake of an accepted call.  False: the call is refused.
bool Dialer::take_in(Fd fd, bool is_local) {
  Address source{};
  std::size_t places = places_.of_this_host();
  if (is_local) {
    if (!is_of_this_user(fd.get())) return false;
  } else {
    source = source_of(fd.get()).value_or(Address{0xfe, 0x80});
    places = places_.of(source);
  }
  const auto from_there =
      std::count_if(called_.begin(), called_.end(), [&](const auto& called) { return called.second.source == source; });
  if (places == 0 || (static_cast<std::size_t>(from_there) >= places && !drop_one(&source))) return false;
  if (called_.size() >= most_called() && !drop_one(nullptr)) return false;
  const int number = fd.get();
  Called called{std::make_unique<PendingLink>(calls_, is_local ? nullptr : &*context_, std::move(fd)), now_ns(),
                source};
  if (calls_.epoll_ctl(epoll_, EPOLL_CTL_ADD, number, called.pending->events()) != 0) return false;
  called_[number] = std::move(called);
  return true;
}

/// Drops the oldest caller to make room.  Callers that have not begun a handshake are dropped first.  @p source: only
/// callers from this address; nullptr: all callers.  False: no such caller exists.
bool Dialer::drop_one(const Address* source) {
  auto dropped = called_.end();
  const auto rank = [](const Called& c) { return std::pair(c.pending->has_begun(), c.since_ns); };
  for (auto it = called_.begin(); it != called_.end(); ++it)
    if ((!source || it->second.source == *source) &&
        (dropped == called_.end() || rank(it->second) < rank(dropped->second)))
      dropped = it;
  if (dropped == called_.end()) return false;
  called_.erase(dropped);
  return true;
}

Welcome Dialer::decide(const Caller& caller) {
  if (caller.to != static_cast<std::uint32_t>(plan_.rank) || caller.from >= static_cast<std::uint32_t>(plan_.size()) ||
      caller.from == caller.to || caller.world != plan_.at(plan_.rank).world)
    return Welcome::stranger;
  const std::size_t ways = plan_.ways(static_cast<int>(caller.from)).size();
  if (caller.lane > static_cast<std::size_t>(plan_.bulk_lanes) + (ways > 1 ? ways - 1 : 0)) return Welcome::stranger;
  if ((caller.encrypts != 0) != plan_.encrypts) return Welcome::otherwise;
  const LaneName lane{static_cast<int>(caller.from), static_cast<int>(caller.lane)};
  if (user_.gone(lane.peer)) return Welcome::stranger;
  if (caller.move != 0) return lane.number == 0 && ways > 1 ? decide_move(lane.peer, caller.move) : Welcome::stranger;
  const auto call = calling_.find(lane);
  const bool we_call = call != calling_.end() && call->second.pending;
  if (user_.stands(lane) || (we_call && plan_.rank < lane.peer)) return Welcome::duplicate;
  return Welcome::yes;
}

Welcome Dialer::decide_move(int peer, std::uint64_t move) {
  if (!user_.stands({peer, 0})) return Welcome::stranger;
  const std::uint64_t moved_by = user_.moved_by(peer);
  if (plan_.rank > peer) return move > moved_by ? Welcome::yes : Welcome::duplicate;  // else a call that was given up
  if (move >= moved_by) user_.asked_to_move(peer);
  return Welcome::duplicate;
}

void Dialer::step_called(int fd) {
  PendingLink& c = *called_.at(fd).pending;
  PendingLink::State state = c.step();
  if (state == PendingLink::State::introduced) {
    c.answer(decide(c.caller()));
    state = c.step();
  }
  if (state == PendingLink::State::welcome)
    made({static_cast<int>(c.caller().from), static_cast<int>(c.caller().lane)}, c);
  if (state != PendingLink::State::under_way || c.fd() < 0 ||
      calls_.epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, c.events()) != 0)
    called_.erase(fd);
}

}  // namespace hvd::transport::tcp

#include "rank/host/guard_relay.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "wire/channel/relayed_frame.h"

namespace hvd::rank {

Fd GuardRelay::add(int rank) {
  if (!epoll_) epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  int pair[2];
  if (!epoll_ || ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    throw Error(Code::unavailable, "socketpair", errno_text(errno));
  const auto number = static_cast<std::uint32_t>(rank);
  Fd ours(pair[0]), theirs(pair[1]);
  guards_.try_emplace(number, std::move(ours), epoll_.get(), number);
  return theirs;
}

bool GuardRelay::turn(Outbox& outbox) {
  std::array<epoll_event, 64> events;
  const int n =
      epoll_ && !outbox.is_full() ? ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0) : 0;
  for (int i = 0; i < n; ++i)
    if (const auto guard = guards_.find(static_cast<std::uint32_t>(events[static_cast<std::size_t>(i)].data.u64));
        guard != guards_.end() && (events[static_cast<std::size_t>(i)].events & ~std::uint32_t{EPOLLOUT}) != 0)
      guard->second.socket.read();
  bool is_left = false;
  for (auto it = guards_.begin(); it != guards_.end();) {
    auto& [rank, guard] = *it;
    while (!outbox.is_full()) {
      const auto frame = guard.socket.take();
      if (!frame) break;
      outbox.add(wire::relayed(rank, *frame));
    }
    guard.flush();
    is_left |= guard.socket.has_frame();
    if (guard.socket.ended() && !guard.socket.has_frame()) {
      outbox.add(wire::relayed(rank, {wire::guard_has_ended, {}}));
      it = guards_.erase(it);
    } else {
      ++it;
    }
  }
  return is_left;
}

void GuardRelay::hand_out(const std::string& body) {
  auto inner = wire::from_relayed(body);
  const auto guard = inner ? guards_.find(inner->rank) : guards_.end();
  if (guard == guards_.end()) return;  // the guard has ended
  guard->second.queued_bytes += inner->frame.body.size();
  guard->second.queue.push_back(std::move(inner->frame));
  guard->second.flush();
}

bool GuardRelay::is_full() const {
  return std::any_of(guards_.begin(), guards_.end(),
                     [](const auto& guard) { return guard.second.queued_bytes >= wire::max_frame_bytes; });
}

void GuardRelay::GuardEnd::flush() {
  socket.flush();
  while (!queue.empty() && socket.send(queue.front())) {
    queued_bytes -= queue.front().body.size();
    queue.pop_front();
  }
}

}  // namespace hvd::rank

#include "recorder/trace/link_sink.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "recorder/steps/ticks.h"
#include "wire/messages/message.h"

namespace hvd::trace {

namespace {
constexpr std::int64_t hurry_limit_ns = 2'000'000'000;
}

bool LinkSink::write(std::span<const std::uint8_t> body) {
  const auto length = static_cast<std::uint32_t>(body.size());
  const auto type = static_cast<std::uint16_t>(wire::Type::trace);
  frame_ = {static_cast<std::uint8_t>(length),
            static_cast<std::uint8_t>(length >> 8),
            static_cast<std::uint8_t>(length >> 16),
            static_cast<std::uint8_t>(length >> 24),
            static_cast<std::uint8_t>(type),
            static_cast<std::uint8_t>(type >> 8),
            0,
            0};
  frame_.insert(frame_.end(), body.begin(), body.end());
  std::span<const std::uint8_t> rest = frame_;
  while (!rest.empty()) {
    const ssize_t sent = send(fd_, rest.data(), rest.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
      rest = rest.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      if (!wait_for_room()) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

void LinkSink::hurry() { deadline_ns_.store(monotonic_ns() + hurry_limit_ns); }

/// Waits up to 100 ms for room in the socket.  False: the deadline has passed.  Without a deadline the sink waits for a
/// slow guard without limit.  Meanwhile full rings drop records and count them.
bool LinkSink::wait_for_room() {
  const std::int64_t deadline = deadline_ns_.load();
  if (deadline != 0 && monotonic_ns() >= deadline) return false;
  pollfd entry{fd_, POLLOUT, 0};
  poll(&entry, 1, 100);
  return true;
}

}  // namespace hvd::trace

#include "launcher/control/rank_input.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace hvd::launcher {

namespace {

constexpr std::size_t piece_bytes = 64u << 10;

}  // namespace

void Input::taken(std::uint64_t bytes) {
  if (bytes == UINT64_MAX)
    ended_ = true;
  else
    taken_ = std::clamp(bytes, taken_, sent_);
}

int Input::fd() const { return begun_ && !ended_ && sent_ - taken_ < window_bytes ? fd_ : -1; }

void Input::turn() {
  std::string piece(piece_bytes, '\0');
  for (pollfd ready{fd(), POLLIN, 0}; ready.fd >= 0 && ::poll(&ready, 1, 0) > 0; ready.fd = fd()) {
    const ssize_t n = ::read(fd_, piece.data(), piece.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    ended_ = n <= 0;  // an error is an end too: there is no standard input, or another job has the terminal
    sent_ += static_cast<std::uint64_t>(std::max<ssize_t>(n, 0));
    send_(piece.substr(0, static_cast<std::size_t>(std::max<ssize_t>(n, 0))));
  }
}

}  // namespace hvd::launcher

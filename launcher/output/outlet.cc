#include "launcher/output/outlet.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace hvd::launcher {

namespace {

constexpr std::size_t safe_piece_bytes = 4096;  // PIPE_BUF: a writable pipe takes this without blocking

bool is_regular(int fd) {
  struct stat about {};
  return ::fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
}

}  // namespace

Outlet::Outlet(int fd) : fd_(fd), terminal_(::isatty(fd) == 1), never_waits_(is_regular(fd)) {}

void Outlet::put(std::string_view bytes) {
  if (closed_by_ != 0) return;
  pending_.append(bytes);
}

bool Outlet::write_piece() {
  const std::size_t size = never_waits_ ? pending_bytes() : std::min(pending_bytes(), safe_piece_bytes);
  const ssize_t n = ::write(fd_, pending_.data() + written_, size);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return false;
  if (n < 0) {
    closed_by_ = errno;
    pending_.clear();
    written_ = 0;
    return false;
  }
  written_ += static_cast<std::size_t>(n);
  if (written_ == pending_.size()) pending_.clear(), written_ = 0;
  if (written_ > (1u << 20)) pending_.erase(0, written_), written_ = 0;
  return true;
}

void Outlet::flush_ready() {
  while (pending_bytes()) {
    pollfd ready{fd_, POLLOUT, 0};
    if (!never_waits_ && ::poll(&ready, 1, 0) <= 0) return;
    if (!write_piece()) return;
  }
}

void Outlet::flush_all(int limit_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
  while (pending_bytes()) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd ready{fd_, POLLOUT, 0};
    if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) == 0) return;
    write_piece();
  }
}

}  // namespace hvd::launcher

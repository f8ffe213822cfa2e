#include "rank/streams/standard_input.h"

#include <unistd.h>

#include <cerrno>

namespace hvd::rank {

void StandardInput::add(std::string_view piece) {
  ends_ = ends_ || piece.empty();
  if (!fd_) return;
  pending_.append(piece);
  if (ends_ && pending_.empty()) fd_.reset();
}

std::optional<std::uint64_t> StandardInput::step() {
  if (!fd_ || pending_.empty()) return {};
  const ssize_t n = write(fd_.get(), pending_.data(), pending_.size());
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return {};
  if (n < 0) {
    fd_.reset();
    pending_.clear();
    return closed;
  }
  pending_.erase(0, static_cast<std::size_t>(n));
  taken_ += static_cast<std::uint64_t>(n);
  if (ends_ && pending_.empty()) fd_.reset();
  return taken_;
}

}  // namespace hvd::rank

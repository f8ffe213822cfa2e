#include "local_socket.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>

#include "base/error.h"
#include "wire/messages/link.h"

namespace hvd::wire {
namespace {

constexpr std::size_t read_bytes = 64u << 10;

struct Header {
  std::size_t body_bytes;
  std::uint16_t type;
  bool sound;
};

Header header_at(const char* at) {
  const auto* h = reinterpret_cast<const unsigned char*>(at);
  const std::size_t length = h[0] | h[1] << 8 | h[2] << 16 | static_cast<std::size_t>(h[3]) << 24;
  return {length, static_cast<std::uint16_t>(h[4] | h[5] << 8), h[6] == 0 && h[7] == 0 && length <= max_frame_bytes};
}

}  // namespace

LocalSocket::LocalSocket(Fd socket, int epoll, std::uint64_t id) : socket_(std::move(socket)), epoll_(epoll), id_(id) {
  watch(EPOLLIN);
}

void LocalSocket::watch(std::uint32_t events) {
  if (events == watched_) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id_;
  const int what = watched_ == 0 ? EPOLL_CTL_ADD : events == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
  if (epoll_ctl(epoll_, what, socket_.get(), &event) != 0)
    throw Error(Code::unavailable, "channel", "epoll_ctl: " + errno_text(errno));
  watched_ = events;
}

void LocalSocket::end() {
  ended_ = deaf_ = true;
  watch(0);
}

bool LocalSocket::send(const Frame& frame) {
  if (frame.body.size() > max_frame_bytes) throw Error(Code::internal, "channel", "a frame is longer than 4 MiB");
  flush();
  if (!out_.empty()) return false;
  unsigned char header[link::header_bytes];
  link::put_header(header, static_cast<Type>(frame.type), frame.body.size());
  std::string bytes(reinterpret_cast<const char*>(header), sizeof header);
  bytes += frame.body;
  write(bytes);
  return true;
}

void LocalSocket::write(std::string_view bytes) {
  out_ += bytes;
  flush();
}

void LocalSocket::flush() {
  while (!deaf_ && written_ < out_.size()) {
    const ssize_t n =
        ::send(socket_.get(), out_.data() + written_, out_.size() - written_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0)
      written_ += static_cast<std::size_t>(n);
    else if (errno == EAGAIN)
      return watch(EPOLLIN | EPOLLOUT);
    else if (errno != EINTR)
      deaf_ = true;  // what it said before its end can still be read
  }
  out_.clear();
  written_ = 0;
  if (!ended_) watch(EPOLLIN);
}

void LocalSocket::read() {
  if (ended_) return;
  in_.erase(0, taken_);
  taken_ = 0;
  // Not on the stack, all pages of which would be touched: most messages are short, and guards many.
  static thread_local const auto piece = std::make_unique_for_overwrite<char[]>(read_bytes);
  ssize_t n;
  while ((n = recv(socket_.get(), piece.get(), read_bytes, MSG_DONTWAIT)) < 0 && errno == EINTR) {}
  if (n > 0) in_.append(piece.get(), static_cast<std::size_t>(n));
  if (n == 0 || (n < 0 && errno != EAGAIN)) end();
}

std::optional<std::string> LocalSocket::take_key(std::size_t bytes) {
  if (in_.size() - taken_ < bytes) return std::nullopt;
  taken_ += bytes;
  return in_.substr(taken_ - bytes, bytes);
}

bool LocalSocket::has_frame() const {
  const std::size_t there = in_.size() - taken_;
  if (there < link::header_bytes) return false;
  const Header h = header_at(in_.data() + taken_);
  return !h.sound || there >= link::header_bytes + h.body_bytes;
}

std::optional<Frame> LocalSocket::take() {
  if (!has_frame()) return std::nullopt;
  const Header h = header_at(in_.data() + taken_);
  if (!h.sound) {  // not one of our guards' frames, and so is all that follows
    taken_ = in_.size();
    if (!ended_) end();
    return std::nullopt;
  }
  Frame frame{h.type, in_.substr(taken_ + link::header_bytes, h.body_bytes)};
  taken_ += link::header_bytes + h.body_bytes;
  return frame;
}

void LocalSocket::linger(std::chrono::steady_clock::time_point limit) {
  for (flush(); !out_.empty(); flush()) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(limit - std::chrono::steady_clock::now()).count();
    pollfd room{socket_.get(), POLLOUT, 0};
    if (left <= 0 || poll(&room, 1, static_cast<int>(left)) == 0) return;
  }
}

}  // namespace hvd::wire

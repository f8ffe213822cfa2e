#include "local_socket.h"

#include <poll.h>
#include <sys/epoll.h>

#include <cerrno>

#include "base/error.h"

namespace hvd::wire {

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
  ended_ = true;
  watch(0);
}

bool LocalSocket::send(const Frame& frame) {
  if (frame.body.size() > max_frame_bytes) throw Error(Code::internal, "channel", "a frame is longer than 4 MiB");
  flush();
  if (!out_.is_empty()) return false;
  out_.add(frame.type, frame.body);
  flush();
  return true;
}

void LocalSocket::send_key(const std::string& key) {
  out_.add_bytes(key);
  flush();
}

void LocalSocket::flush() {
  if (ended_) return out_.drop();
  // An end that reads no more may have said something before: read() finds its end.
  watch(out_.flush(socket_.get()) == FrameOutput::Flush::blocked ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void LocalSocket::read() {
  if (!ended_ && in_.read(socket_.get()) == FrameInput::Read::ended) end();
}

std::optional<Frame> LocalSocket::take() {
  if (auto frame = in_.take()) return Frame{static_cast<std::uint16_t>(frame->tag), std::move(frame->body)};
  if (in_.is_malformed()) {
    in_.drop();
    if (!ended_) end();
  }
  return std::nullopt;
}

void LocalSocket::linger(std::chrono::steady_clock::time_point limit) {
  for (flush(); !out_.is_empty(); flush()) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(limit - std::chrono::steady_clock::now()).count();
    pollfd room{socket_.get(), POLLOUT, 0};
    if (left <= 0 || poll(&room, 1, static_cast<int>(left)) == 0) return;
  }
}

}  // namespace hvd::wire

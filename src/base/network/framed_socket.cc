#include "base/network/framed_socket.h"

#include <poll.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace hvd {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t read_bytes = 64u << 10;
constexpr auto rest_limit = std::chrono::seconds(60);  ///< for the rest of a frame after its first byte

/// True when the socket is ready; false at the deadline.
bool wait_until(int socket, short event, Deadline deadline) {
  for (;;) {
    int limit = -1;
    if (deadline != Deadline::max()) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
      limit = static_cast<int>(std::clamp<long long>(left + 1, 0, 1 << 30));
    }
    pollfd p{socket, event, 0};
    const int ready = ::poll(&p, 1, limit);
    if (ready > 0) return true;
    if (ready == 0 && Clock::now() >= deadline) return false;
  }
}

}  // namespace

std::string framed(std::uint32_t tag, std::string_view body) {
  std::string bytes(SocketFrameHeader::bytes, '\0');
  SocketFrameHeader{static_cast<std::uint32_t>(body.size()), tag}.put(bytes.data());
  bytes += body;
  return bytes;
}

FrameInput::Read FrameInput::read(int socket) {
  in_.erase(0, taken_);
  taken_ = 0;
  // On the heap: -fstack-clash-protection would touch all pages of a buffer on the stack, and most messages are short.
  static thread_local const auto piece = std::make_unique_for_overwrite<char[]>(read_bytes);
  ssize_t n;
  while ((n = ::recv(socket, piece.get(), read_bytes, MSG_DONTWAIT)) < 0 && errno == EINTR) {}
  if (n > 0) {
    in_.append(piece.get(), static_cast<std::size_t>(n));
    return Read::some;
  }
  return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? Read::nothing : Read::ended;
}

std::optional<std::string> FrameInput::take_bytes(std::size_t bytes) {
  if (in_.size() - taken_ < bytes) return std::nullopt;
  taken_ += bytes;
  return in_.substr(taken_ - bytes, bytes);
}

std::optional<SocketFrameHeader> FrameInput::header() const {
  if (in_.size() - taken_ < SocketFrameHeader::bytes) return std::nullopt;
  return SocketFrameHeader::at(in_.data() + taken_);
}

bool FrameInput::is_malformed() const {
  const auto h = header();
  return h && (h->body_bytes > most_body_bytes_ || h->tag > largest_tag_);
}

bool FrameInput::has_frame() const {
  const auto h = header();
  return h && !is_malformed() && in_.size() - taken_ - SocketFrameHeader::bytes >= h->body_bytes;
}

std::optional<TaggedFrame> FrameInput::take() {
  if (!has_frame()) return std::nullopt;
  const SocketFrameHeader h = *header();
  TaggedFrame frame{h.tag, in_.substr(taken_ + SocketFrameHeader::bytes, h.body_bytes)};
  taken_ += SocketFrameHeader::bytes + h.body_bytes;
  return frame;
}

void FrameOutput::add(std::uint32_t tag, std::shared_ptr<const std::string> body) {
  std::string header(SocketFrameHeader::bytes, '\0');
  SocketFrameHeader{static_cast<std::uint32_t>(body->size()), tag}.put(header.data());
  pieces_.push_back(std::make_shared<const std::string>(std::move(header)));
  if (!body->empty()) pieces_.push_back(std::move(body));
}

void FrameOutput::add_bytes(std::string_view bytes) {
  if (!bytes.empty()) pieces_.push_back(std::make_shared<const std::string>(bytes));
}

FrameOutput::Flush FrameOutput::flush(int socket) {
  while (!pieces_.empty()) {
    std::array<iovec, 8> parts;
    std::size_t count = 0;
    for (; count < std::min(pieces_.size(), parts.size()); ++count) {
      const std::size_t skipped = count == 0 ? sent_ : 0;
      parts[count] = {const_cast<char*>(pieces_[count]->data()) + skipped, pieces_[count]->size() - skipped};
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t n = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Flush::blocked;
    if (n < 0) {
      drop();
      return Flush::broken;
    }
    for (sent_ += static_cast<std::size_t>(n); !pieces_.empty() && sent_ >= pieces_.front()->size();) {
      sent_ -= pieces_.front()->size();
      pieces_.pop_front();
    }
  }
  return Flush::all_sent;
}

bool send_frame(int socket, std::uint32_t tag, std::string_view body, Deadline deadline) {
  FrameOutput out;
  out.add_bytes(framed(tag, body));
  for (;;) {
    const auto state = out.flush(socket);
    if (state != FrameOutput::Flush::blocked) return state == FrameOutput::Flush::all_sent;
    if (!wait_until(socket, POLLOUT, deadline)) return false;
  }
}

ReceivedFrame receive_frame(int socket, std::size_t most_body_bytes, Deadline deadline) {
  std::array<char, SocketFrameHeader::bytes> header;
  TaggedFrame frame;
  std::size_t got = 0, whole = header.size();
  Deadline limit = deadline;
  while (got < whole) {
    if (!wait_until(socket, POLLIN, limit)) return {.ended = got > 0};
    char* const to = got < header.size() ? header.data() + got : frame.body.data() + (got - header.size());
    const std::size_t room = (got < header.size() ? header.size() : whole) - got;
    const ssize_t n = ::recv(socket, to, room, 0);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return {.ended = true};
    if (got == 0) limit = Clock::now() + rest_limit;
    got += static_cast<std::size_t>(n);
    if (got != header.size() || whole != header.size()) continue;
    const SocketFrameHeader h = SocketFrameHeader::at(header.data());
    if (h.body_bytes > most_body_bytes) return {.ended = true};
    frame.tag = h.tag;
    frame.body.resize(h.body_bytes);
    whole += h.body_bytes;
  }
  return {.frame = std::move(frame)};
}

}  // namespace hvd

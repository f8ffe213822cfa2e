#include "transport/tcp/stream/lane.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace hvd::transport::tcp {
namespace {

constexpr int most_parts = 32;
constexpr int turns = 8;  ///< maximum number of system calls for one lane before other lanes are served
/// Bytes of a large frame that must arrive before epoll wakes the reader.  Reads are then larger and fewer.  Measured,
/// median: 64 MiB between two hosts takes 27 ms instead of 42 ms.
constexpr std::size_t worth_a_read = 256 << 10;
/// Bytes of kept frames from which the lane asks the kernel which of them have been acknowledged.
constexpr std::size_t look_from = 32 << 10;

}  // namespace

void Lane::add(OutFrame frame) {
  frame.left = frame.whole();
  out_.push_back(std::move(frame));
}

unsigned Lane::ms_since_heard() const {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  return ::getsockopt(fd(), IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 ? info.tcpi_last_ack_recv : 0;
}

int Lane::send() {
  if (count_left_ > 0)
    if (const int error = send_count()) return error;
  if (out_.empty() || awaits_count_ || count_left_ > 0) return stream_->flush();
  if (kept_.bytes() >= look_from) drop_acknowledged();
  for (int turn = 0; turn < turns && !out_.empty(); ++turn) {
    iovec parts[most_parts];
    int count = 0;
    for (const OutFrame& f : out_) {
      if (count + 2 > most_parts) break;
      const std::size_t done = f.whole() - f.left;
      if (done < sizeof f.header)
        parts[count++] = {const_cast<char*>(reinterpret_cast<const char*>(&f.header)) + done, sizeof f.header - done};
      const std::size_t from = done < sizeof f.header ? 0 : done - sizeof f.header;
      if (f.header.bytes > from) parts[count++] = {const_cast<char*>(f.data) + from, f.header.bytes - from};
    }
    const ssize_t sent = stream_->send(parts, count);
    if (sent < 0) {
      if (errno == EINTR) continue;
      return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : errno;
    }
    sent_ += static_cast<std::uint64_t>(sent);
    for (auto left = static_cast<std::size_t>(sent); left > 0 || (!out_.empty() && out_.front().left == 0);) {
      const std::size_t part = std::min(left, out_.front().left);
      out_.front().left -= part;
      left -= part;
      if (out_.front().left > 0) break;
      OutFrame gone = std::move(out_.front());
      out_.pop_front();
      if (keeps) gone.own();
      handler_.left(*this, gone);
      if (keeps) kept_.add(std::move(gone), stream_->written());
    }
  }
  return 0;
}

int Lane::receive() {
  const int ended = receive_some();
  const std::size_t left = in_frame_ && !awaits_count_ ? in_left_ - std::min(in_left_, stream_->read_ahead()) : 0;
  if (ended == 0) announce_from(left >= worth_a_read / 2 ? std::min(left, worth_a_read) : 1);
  return ended;
}

/// @p bytes must not exceed the missing bytes of the frame.  Otherwise epoll would not report the end of the frame.
void Lane::announce_from(std::size_t bytes) {
  if (bytes == announced_from_ || is_local) return;
  announced_from_ = bytes;
  calls_.announce_from(fd_.get(), static_cast<int>(bytes));
}

int Lane::receive_some() {
  for (int turn = 0; turn < turns || stream_->pending(); ++turn) {
    // The payload of the current frame goes directly to its destination.  Later bytes go through small_.
    iovec parts[2];
    int count = 0;
    const std::size_t direct = in_frame_ && target_ && !awaits_count_ ? in_left_ : 0;
    if (direct > 0) parts[count++] = {target_, direct};
    parts[count++] = {small_, sizeof small_};
    const ssize_t got = stream_->receive(parts, count, turn < turns);
    if (got == 0) return -1;
    if (got < 0) {
      if (errno == EINTR) continue;
      return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : errno;
    }
    auto bytes = static_cast<std::size_t>(got);
    const std::size_t placed = std::min(bytes, direct);
    if (placed > 0) {
      target_ += placed;
      received_ += placed;
      in_left_ -= placed;
      bytes -= placed;
      if (in_left_ == 0) end_frame();
    }
    take(small_, bytes);
    if (static_cast<std::size_t>(got) < direct + sizeof small_ && !stream_->pending())
      return 0;  // no more bytes are available
  }
  return 0;
}

void Lane::take(const unsigned char* data, std::size_t bytes) {
  if (awaits_count_) {
    const std::size_t part = take_count(data, bytes);
    data += part;
    bytes -= part;
  }
  received_ += bytes;
  while (bytes > 0) {
    std::size_t part;
    if (!in_frame_) {
      part = std::min(bytes, sizeof in_ - header_got_);
      std::memcpy(reinterpret_cast<unsigned char*>(&in_) + header_got_, data, part);
      header_got_ += part;
      if (header_got_ == sizeof in_) begin_frame();
    } else {
      part = std::min(bytes, in_left_);
      if (target_) {
        std::memcpy(target_, data, part);
        target_ += part;
      }
      in_left_ -= part;
      if (in_left_ == 0) end_frame();
    }
    data += part;
    bytes -= part;
  }
}

void Lane::begin_frame() {
  header_got_ = 0;
  in_left_ = in_.bytes;
  target_ = handler_.place(*this, in_);
  in_frame_ = true;
  if (in_left_ == 0) end_frame();
}

void Lane::end_frame() {
  in_frame_ = false;
  handler_.arrived(*this, in_);
}

std::size_t Lane::forget(std::uint64_t ticket) {
  std::size_t dropped = 0;
  for (auto frame = out_.begin(); frame != out_.end();) {
    if (frame->ticket != ticket) {
      ++frame;
      continue;
    }
    if (frame->left == frame->whole()) {
      frame = out_.erase(frame);
      ++dropped;
      continue;
    }
    frame->own();  // copies the whole payload, so that offsets stay valid
    frame->ticket = 0;
    ++frame;
  }
  return dropped;
}

// ---- another connection

/// The other end receives all bytes that its kernel has acknowledged, before it uses another connection.
void Lane::drop_acknowledged() {
  if (moves) return;
  const int unacknowledged = calls_.unacknowledged(fd_.get());
  const std::uint64_t in_kernel = stream_->written() - stream_->waiting();
  if (unacknowledged >= 0 && static_cast<std::uint64_t>(unacknowledged) <= in_kernel)
    kept_.drop(in_kernel - static_cast<std::uint64_t>(unacknowledged));
}

void Lane::resume(Fd fd, std::unique_ptr<ByteStream> stream) {
  stream_ = std::move(stream);
  fd_ = std::move(fd);
  announced_from_ = 1;
  own_count_ = received_;
  count_left_ = sizeof own_count_;
  count_got_ = 0;
  awaits_count_ = true;
  moves = interrupted = false;
}

int Lane::send_count() {
  const char* const end = reinterpret_cast<const char*>(&own_count_ + 1);
  const iovec part{const_cast<char*>(end) - count_left_, count_left_};
  const ssize_t sent = stream_->send(&part, 1);
  if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : errno;
  count_left_ -= static_cast<std::size_t>(sent);
  return 0;
}

/// Returns the number of taken bytes.
std::size_t Lane::take_count(const unsigned char* data, std::size_t bytes) {
  const std::size_t part = std::min(bytes, sizeof their_count_ - count_got_);
  std::memcpy(reinterpret_cast<unsigned char*>(&their_count_) + count_got_, data, part);
  count_got_ += part;
  if (count_got_ < sizeof their_count_) return part;
  awaits_count_ = false;
  kept_.give_back(out_, sent_, their_count_);
  sent_ = their_count_;
  return part;
}

}  // namespace hvd::transport::tcp

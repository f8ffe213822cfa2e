#include "rank/guard/rank_streams.h"

#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "wire/messages/link.h"
#include "wire/messages/message.h"

namespace hvd::rank {

std::span<char> read_buffer() {
  static const auto bytes = std::make_unique_for_overwrite<char[]>(wire::link::max_packet_bytes);
  return {bytes.get(), wire::link::max_packet_bytes};
}

void RankStreams::open(Fd out, Fd err) {
  out_fd_ = std::move(out);
  err_fd_ = std::move(err);
}

void RankStreams::add_fds(std::vector<pollfd>& fds) const {
  for (const int fd : {out_fd_.get(), err_fd_.get()})
    if (fd >= 0) fds.push_back({fd, POLLIN, 0});
}

bool RankStreams::pump(Outbox& outbox, Clock::time_point now) {
  bool any = false;
  if (out_fd_ && !outbox.is_full()) any |= pump_stream(out_fd_, out_, 1, outbox, now);
  if (err_fd_ && !outbox.is_full()) any |= pump_stream(err_fd_, err_, 2, outbox, now);
  return any;
}

bool RankStreams::pump_stream(Fd& fd, Output& output, char stream, Outbox& outbox, Clock::time_point now) {
  const std::span<char> buffer = read_buffer();
  const ssize_t n = read(fd.get(), buffer.data(), buffer.size());
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n <= 0) {
    fd.reset();
    return true;
  }
  written_ += static_cast<std::uint64_t>(n);
  const bool had_traceback = output.holds_traceback();
  const std::string out = output.take({buffer.data(), static_cast<std::size_t>(n)}, now);
  has_new_traceback_ |= output.holds_traceback() && !had_traceback;
  if (!out.empty()) outbox.add(wire::Type::output, stream + out);
  return true;
}

bool RankStreams::has_new_traceback() { return std::exchange(has_new_traceback_, false); }

void RankStreams::expire(Outbox& outbox, Clock::time_point now) {
  const std::string out = err_.expire(now);
  if (!out.empty()) outbox.add(wire::Type::output, '\2' + out);
}

}  // namespace hvd::rank

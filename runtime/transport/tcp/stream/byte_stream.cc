#include "transport/tcp/stream/byte_stream.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/tcp/stream/tls_stream.h"

namespace hvd::transport::tcp {
namespace {

class PlainStream final : public ByteStream {
 public:
  PlainStream(SocketCalls& calls, int fd, std::string rest) : calls_(calls), fd_(fd), rest_(std::move(rest)) {}

  ssize_t send(const iovec* parts, int count) override {
    const ssize_t sent = calls_.send(fd_, parts, count);
    if (sent > 0) written_ += static_cast<std::uint64_t>(sent);
    return sent;
  }
  std::uint64_t written() const override { return written_; }
  ssize_t receive(const iovec* parts, int count, bool asks_kernel) override {
    if (pending()) return take_rest(parts, count);
    if (asks_kernel) return calls_.receive(fd_, parts, count);
    errno = EAGAIN;
    return -1;
  }
  bool pending() const override { return !rest_.empty(); }

 private:
  ssize_t take_rest(const iovec* parts, int count) {
    std::size_t taken = 0;
    for (int i = 0; i < count; ++i) {
      const std::size_t part = std::min(parts[i].iov_len, rest_.size() - taken);
      std::memcpy(parts[i].iov_base, rest_.data() + taken, part);
      taken += part;
    }
    rest_.erase(0, taken);
    return static_cast<ssize_t>(taken);
  }

  SocketCalls& calls_;
  const int fd_;
  std::string rest_;
  std::uint64_t written_ = 0;
};

}  // namespace

std::unique_ptr<ByteStream> make_stream(SocketCalls& calls, int fd, std::unique_ptr<TlsSession> session,
                                        std::string rest) {
  if (session) return std::make_unique<TlsStream>(calls, fd, std::move(session), std::move(rest));
  return std::make_unique<PlainStream>(calls, fd, std::move(rest));
}

}  // namespace hvd::transport::tcp

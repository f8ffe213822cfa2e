#include "transport/tcp/stream/tls_stream.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "base/error.h"
#include "transport/tcp/stream/tls_library.h"

namespace hvd::transport::tcp {
namespace {

constexpr std::size_t record_bytes = 16 << 10;       ///< maximum payload of a TLS record
constexpr std::size_t record_overhead = 5 + 1 + 16;  ///< header, content type, authentication tag
constexpr std::size_t out_bytes = 128 << 10;     ///< limit on bytes that wait for the kernel; one record may exceed it
constexpr std::size_t in_bytes = 128 << 10;      ///< maximum bytes that one call reads from the kernel
constexpr std::size_t bytes_a_call = 512 << 10;  ///< maximum bytes for one send(); the caller can then receive
constexpr int source_sink = 0x0400 | 100, flush_command = 11, update_not_requested = 0;
constexpr int reads_again = 1 | 8, all_of_them = 15;  // BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY, BIO_FLAGS_RWS | …

}  // namespace

/// The functions of OpenSSL's BIO interface, which OpenSSL calls.
struct TlsInOut {
  static TlsStream& of(void* bio) { return *static_cast<TlsStream*>(tls().BIO_get_data(bio)); }
  static int write(void* bio, const char* data, int bytes) {
    of(bio).write(data, static_cast<std::size_t>(bytes));
    return bytes;
  }
  static int read(void* bio, char* to, int most) {
    tls().BIO_clear_flags(bio, all_of_them);
    const std::size_t got = of(bio).read(to, static_cast<std::size_t>(most));
    if (got > 0) return static_cast<int>(got);
    tls().BIO_set_flags(bio, reads_again);
    return -1;
  }
  static long control(void*, int command, long, void*) { return command == flush_command ? 1 : 0; }
  static void* make(TlsStream& stream) {
    static void* const method = [] {
      void* m = tls().BIO_meth_new(source_sink, "hvd");
      tls().BIO_meth_set_write(m, write);
      tls().BIO_meth_set_read(m, read);
      tls().BIO_meth_set_ctrl(m, control);
      return m;
    }();
    void* const bio = tls().BIO_new(method);
    if (!bio) throw Error(Code::unavailable, "OpenSSL", "no memory for a connection");
    tls().BIO_set_data(bio, &stream);
    tls().BIO_set_init(bio, 1);
    return bio;
  }
};

TlsSession::~TlsSession() { tls().SSL_free(ssl_); }

TlsStream::TlsStream(SocketCalls& calls, int fd, std::unique_ptr<TlsSession> session, std::string rest,
                     std::size_t most_records)
    : calls_(calls),
      fd_(fd),
      session_(std::move(session)),
      most_records_(most_records),
      in_(new char[std::max(in_bytes, rest.size())]) {
  rest.copy(in_.get(), in_to_ = rest.size());
  void* const bio = TlsInOut::make(*this);
  tls().SSL_set_bio(session_->get(), bio, bio);
}

TlsStream::~TlsStream() = default;

// ---- out

void TlsStream::write(const char* data, std::size_t bytes) {
  if (out_from_ == out_.size() || out_from_ >= out_bytes) {  // bounds out_: with a slow kernel out_ may never be empty
    out_.erase(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(out_from_));
    out_from_ = 0;
  }
  out_.insert(out_.end(), data, data + bytes);
  written_ += bytes;
}

bool TlsStream::encrypt(const unsigned char* data, std::size_t bytes) {
  void* const ssl = session_->get();
  tls().ERR_clear_error();
  if (++records_ > most_records_) {
    records_ = 1;
    if (tls().SSL_key_update(ssl, update_not_requested) != 1) return false;
  }
  return tls().SSL_write(ssl, data, static_cast<int>(bytes)) == static_cast<int>(bytes);
}

int TlsStream::flush() {
  if (send_error_ != 0) return send_error_;
  while (waiting() > 0) {
    const iovec part{out_.data() + out_from_, out_.size() - out_from_};
    const ssize_t sent = calls_.send(fd_, &part, 1);
    if (sent < 0) {
      if (errno == EINTR) continue;
      return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : errno;
    }
    out_from_ += static_cast<std::size_t>(sent);
  }
  return 0;
}

/// Encrypts large parts in place, without a copy.  Joins smaller parts into one record.
ssize_t TlsStream::send(const iovec* parts, int count) {
  const auto fail = [](int error) {
    errno = error;
    return ssize_t{-1};
  };
  const auto record = [this](const unsigned char* data, std::size_t bytes) {
    if (!encrypt(data, bytes)) return EPROTO;
    return waiting() >= out_bytes / 2 ? flush() : 0;
  };
  const auto is_full = [this] { return waiting() >= out_bytes; };
  if (const int error = flush()) return fail(error);
  if (is_full()) return fail(EAGAIN);
  std::size_t taken = 0;
  const auto end = [&](int error) {
    if (taken == 0) return fail(error);
    send_error_ = error;  // the other end may receive the accepted bytes
    return static_cast<ssize_t>(taken);
  };
  small_.clear();
  for (int i = 0; i < count && taken < bytes_a_call; ++i) {
    const auto* data = static_cast<const unsigned char*>(parts[i].iov_base);
    std::size_t left = parts[i].iov_len;
    while (left > 0 && taken < bytes_a_call && !is_full()) {
      const bool direct = small_.empty() && left >= record_bytes;
      const std::size_t bytes = std::min(left, record_bytes - small_.size());
      if (!direct) small_.insert(small_.end(), data, data + bytes);
      data += bytes;
      left -= bytes;
      taken += bytes;
      int error = 0;
      if (direct) {
        error = record(data - bytes, bytes);
      } else if (small_.size() == record_bytes) {
        error = record(small_.data(), small_.size());
        small_.clear();
      }
      if (error != 0) return end(error);
    }
    if (left > 0) break;
  }
  if (!small_.empty())
    if (const int error = record(small_.data(), small_.size())) return end(error);
  if (const int error = flush()) return end(error);
  return static_cast<ssize_t>(taken);
}

// ---- in

/// Gives OpenSSL encrypted bytes.  Returns their number; 0: none are available now.
std::size_t TlsStream::read(char* to, std::size_t most) {
  if (in_from_ == in_to_ && asks_kernel_) fill();
  const std::size_t bytes = std::min(most, in_to_ - in_from_);
  std::memcpy(to, in_.get() + in_from_, bytes);
  in_from_ += bytes;
  return bytes;
}

void TlsStream::fill() {
  in_from_ = in_to_ = 0;
  const iovec part{in_.get(), in_bytes};
  ssize_t got;
  do got = calls_.receive(fd_, &part, 1);
  while (got < 0 && errno == EINTR);
  asks_kernel_ = got == static_cast<ssize_t>(in_bytes);  // fewer bytes: the kernel has no more
  if (got > 0) in_to_ = static_cast<std::size_t>(got);
  closed_ = got == 0;
  if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK) error_ = errno;
}

ssize_t TlsStream::receive(const iovec* parts, int count, bool asks_kernel) {
  asks_kernel_ = asks_kernel && error_ == 0 && !closed_;
  ssize_t taken = 0;
  for (int i = 0; i < count; ++i)
    for (std::size_t at = 0; at < parts[i].iov_len;) {
      if (error_ == EBADMSG) break;
      const int most = static_cast<int>(std::min(parts[i].iov_len - at, std::size_t{INT_MAX}));
      tls().ERR_clear_error();
      const int got = tls().SSL_read(session_->get(), static_cast<char*>(parts[i].iov_base) + at, most);
      if (got > 0) {
        at += static_cast<std::size_t>(got);
        taken += got;
        continue;
      }
      if (tls().SSL_get_error(session_->get(), got) != want_read) error_ = EBADMSG;
      tls().ERR_clear_error();
      i = count;
      break;
    }
  if (taken > 0) return taken;
  if (error_ == 0 && closed_) return 0;
  errno = error_ != 0 ? error_ : EAGAIN;
  return -1;
}

bool TlsStream::pending() const {
  return in_from_ < in_to_ || error_ != 0 || closed_ || tls().SSL_pending(session_->get()) > 0;
}

std::size_t TlsStream::read_ahead() const { return record_bytes + record_overhead; }

}  // namespace hvd::transport::tcp

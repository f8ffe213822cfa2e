/// @file tls_stream.h — a connection whose bytes travel as records of TLS 1.3, by OpenSSL, under the keys that its
/// handshake has made.
///
/// OpenSSL does no input or output: it writes into `out_` and reads from `in_`, which hold a few records each.  So it
/// never asks for a call to be repeated, and many records go with one system call.
#pragma once
#include <vector>

#include "transport/tcp/stream/byte_stream.h"

namespace hvd::transport::tcp {

/// What a handshake has come to.  Owned.
class TlsSession {
 public:
  explicit TlsSession(void* ssl) : ssl_(ssl) {}
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;
  void* get() const { return ssl_; }

 private:
  void* const ssl_;
};

class TlsStream final : public ByteStream {
 public:
  /// RFC 8446, 5.5: one key is safe for 2^24.5 records of AES-GCM.
  static constexpr std::size_t records_a_key = std::size_t{1} << 22;

  /// Throws Error{unavailable}.
  TlsStream(SocketCalls& calls, int fd, std::unique_ptr<TlsSession> session, std::string rest,
            std::size_t most_records = records_a_key);
  ~TlsStream() override;
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  ssize_t send(const iovec* parts, int count) override;
  bool holds() const override { return out_from_ < out_.size(); }
  int flush() override;
  /// errno EBADMSG: what came is not what the other end has sent.
  ssize_t receive(const iovec* parts, int count, bool asks_kernel) override;
  bool pending() const override;
  std::size_t read_ahead() const override;
  /// Bytes of memory that what waits for the kernel takes: bounded, however slow the other end is.
  std::size_t waiting_memory() const { return out_.capacity(); }

 private:
  friend struct TlsInOut;
  bool encrypt(const unsigned char* data, std::size_t bytes);
  void write(const char* data, std::size_t bytes);
  std::size_t read(char* to, std::size_t most);
  void fill();

  SocketCalls& calls_;
  const int fd_;
  const std::unique_ptr<TlsSession> session_;
  const std::size_t most_records_;
  std::size_t records_ = 0;  ///< under the present key

  std::vector<char> out_;  ///< encrypted
  std::size_t out_from_ = 0;
  std::vector<unsigned char> small_;  ///< parts that go into one record

  std::unique_ptr<char[]> in_;  ///< encrypted
  std::size_t in_from_ = 0, in_to_ = 0;
  bool asks_kernel_ = false;
  bool closed_ = false;  ///< by the other end
  int error_ = 0;        ///< with which it has ended
};

}  // namespace hvd::transport::tcp

/// @file tls_stream.h — an encrypted connection: TLS 1.3 records by OpenSSL, with the keys of the handshake.
///
/// OpenSSL makes no system calls: it writes into `out_` and reads from `in_`.  Each buffer holds several records.  So
/// OpenSSL never requires a write to be repeated, and one system call sends many records.
#pragma once
#include <vector>

#include "transport/tcp/stream/byte_stream.h"

namespace hvd::transport::tcp {

/// Owns OpenSSL's session (SSL*) after a handshake.
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

/// Size: a buffer, a position and an error for each direction.
class TlsStream final : public ByteStream {
 public:
  /// Maximum number of records for one key.  RFC 8446, section 5.5: one key is safe for 2^24.5 records of AES-GCM.
  static constexpr std::size_t records_a_key = std::size_t{1} << 22;

  /// @p calls and @p fd must outlive this.  @p rest: bytes that were received after the handshake.  @p most_records:
  /// records for one key.  Throws Error{unavailable}.
  TlsStream(SocketCalls& calls, int fd, std::unique_ptr<TlsSession> session, std::string rest,
            std::size_t most_records = records_a_key);
  ~TlsStream() override;
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  ssize_t send(const iovec* parts, int count) override;
  std::uint64_t written() const override { return written_; }
  std::size_t waiting() const override { return out_.size() - out_from_; }
  int flush() override;
  /// errno EBADMSG: the received bytes are not the bytes that the other end sent.
  ssize_t receive(const iovec* parts, int count, bool asks_kernel) override;
  bool pending() const override;
  std::size_t read_ahead() const override;
  /// Bytes of memory for data that the kernel has not accepted.  Bounded, also for a slow peer.
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
  std::size_t records_ = 0;  ///< sent with the current key

  std::vector<char> out_;  ///< encrypted bytes for the kernel; sent before out_from_
  std::size_t out_from_ = 0;
  std::uint64_t written_ = 0;         ///< bytes that out_ has held in total
  std::vector<unsigned char> small_;  ///< small parts that are joined into one record

  std::unique_ptr<char[]> in_;  ///< encrypted bytes from the kernel; unread from in_from_ to in_to_
  std::size_t in_from_ = 0, in_to_ = 0;
  bool asks_kernel_ = false;
  bool closed_ = false;  ///< the other end has closed the connection
  int error_ = 0;        ///< errno with which the connection ended
  int send_error_ = 0;   ///< the same, for the next send(): the last one has accepted bytes
};

}  // namespace hvd::transport::tcp

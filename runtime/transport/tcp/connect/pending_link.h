/// @file pending_link.h — a connection until its handshake is complete.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "transport/tcp/connect/handshake.h"
#include "transport/tcp/connect/listen_address.h"
#include "transport/tcp/stream/socket_calls.h"

namespace hvd::transport::tcp {

/// Milliseconds without an answer after which a connection ends.  A connection survives shorter network failures.
inline constexpr int given_up_ms = 15'000;

/// A call by this rank, or a call that this rank has accepted.  No call blocks.
/// Size: one handshake, from the first address to the proved peer; each state reads most members.
class PendingLink {
 public:
  /// Calls the peer at one address after another.  @p context: null if all addresses are unix sockets.  @p
  /// handshake_ns: time for the handshake after an address accepts the call.  Each round through the addresses gives
  /// more time.
  PendingLink(SocketCalls& calls, const KeyContext* context, const Caller& caller, std::vector<CallAddress> addresses,
              std::int64_t now_ns, std::int64_t handshake_ns);
  /// Takes an accepted call.  @p context: null on a unix socket, whose user the owner has checked.
  PendingLink(SocketCalls& calls, const KeyContext* context, Fd fd);

  enum class State {
    under_way,
    introduced,  ///< accepted call: caller() is known, and the caller waits for answer()
    welcome,     ///< both ends may use the socket; accepted call: the answer has been sent
    duplicate,   ///< own call: the peer has this connection, or calls this rank
    failed,      ///< own call: failed at this address; accepted call: failed finally
  };
  /// Continues without waiting.  Afterwards the owner must let epoll watch fd() for events().
  State step();
  void answer(Welcome welcome) { handshake_->answer(answered_ = welcome); }
  /// Own call: calls the next address, or the first address after the last.  Changes fd().
  void next(std::int64_t now_ns);
  /// Own call: true if the address has not accepted the call, or not proved the key, within its time.  False after the
  /// peer has proved the key, because the peer may already know the caller.  False for a connected unix socket.
  bool too_slow(std::int64_t now_ns) const {
    return now_ns > slow_ns_ && (connecting_ || !(is_local() || handshake_->proved()));
  }
  /// Call it when too_slow() is true.  Returns the address and the missing answer.
  std::string what_is_slow() const;
  /// Own call: true if an address has accepted the call, and does not belong to another process.
  bool reached() const;
  /// Accepted call: true if the other end has begun a valid handshake.  A silent process, or a process that sends other
  /// bytes, never does.
  bool has_begun() const { return begun_; }

  int fd() const { return fd_.get(); }
  std::uint32_t events() const;
  const Caller& caller() const { return calls_peer_ ? caller_ : handshake_->caller(); }
  Fd take_fd() { return std::move(fd_); }
  bool is_local() const { return calls_peer_ ? addresses_[at_].is_local() : context_ == nullptr; }
  /// Returns bytes that were received after the handshake.
  std::string rest() { return handshake_->rest(); }
  /// Returns the TLS session for later bytes.  Call once, after the handshake.
  std::unique_ptr<TlsSession> take_session() { return handshake_->take_session(); }
  /// The error at the last address, with the address.
  const std::string& why() const { return why_; }

 private:
  State fail(const std::string& why);
  State fail_elsewhere(const std::string& why);
  bool send();
  /// Returns 0, an errno, or -1 if the other end has closed the connection.
  int receive();

  SocketCalls& calls_;
  std::unique_ptr<Handshake> new_handshake() const;

  const KeyContext* const context_;
  const bool calls_peer_;
  const Caller caller_{};
  const std::vector<CallAddress> addresses_;
  const std::int64_t handshake_ns_ = 0;
  std::vector<bool> reached_;  ///< [addresses] accepted the call, and not known to belong to another process
  std::size_t at_ = 0;
  int rounds_ = 0;  ///< number of the round through all addresses
  bool begun_ = false;
  Fd fd_;
  bool connecting_ = false, refused_ = false;
  Welcome answered_ = Welcome::none;
  std::int64_t slow_ns_ = 0;              ///< time limit of the current address
  std::unique_ptr<Handshake> handshake_;  ///< null until connected; accepted call: null until bytes arrive
  std::string out_, why_;
};

}  // namespace hvd::transport::tcp

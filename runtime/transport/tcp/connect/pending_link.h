/// @file pending_link.h — a connection until both ends have proved the job's key.
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

/// A host that is gone without a word is given up after so long; a link that is gone for less is survived.
inline constexpr int given_up_ms = 15'000;

/// Called or calling.  Nothing blocks.
class PendingLink {
 public:
  /// Calls the peer at one address after the other.  @p context: null where all are unix sockets.  @p handshake_ns: an
  /// address that accepts the call and does not prove the key within it is given up for the next one.  All addresses
  /// get more time in each round.
  PendingLink(SocketCalls& calls, const KeyContext* context, const Caller& caller, std::vector<CallAddress> addresses,
              std::int64_t now_ns, std::int64_t handshake_ns);
  /// Somebody has called.  @p context: null on a unix socket, whose other end has been looked at.
  PendingLink(SocketCalls& calls, const KeyContext* context, Fd fd);

  enum class State {
    under_way,
    introduced,  ///< called: the caller says who it is, and waits for answer()
    welcome,     ///< both ends may use the socket; called: what answer() said has left
    duplicate,   ///< calling: the peer has a connection, or is calling us
    failed,      ///< calling: at this address; else for good
  };
  /// Does what can be done without waiting.  epoll is to watch fd() for events() afterwards.
  State step();
  void answer(Welcome welcome) { handshake_->answer(answered_ = welcome); }
  /// Calling: goes on to the next address, or to the first again.  The descriptor is another one then.
  void next(std::int64_t now_ns);
  /// Calling: the address has not answered in time, or has not proved the key.  A peer that has proved it may know by
  /// now who calls: its answer is waited for.  So is that of a unix socket.
  bool too_slow(std::int64_t now_ns) const {
    return now_ns > slow_ns_ && (connecting_ || !(is_local() || handshake_->proved()));
  }
  /// What is missing then, with the address.
  std::string what_is_slow() const;
  /// Calling: some address has accepted a call, and has not turned out to be somebody else's.
  bool reached() const;
  /// Called: the other end has begun to prove the key.  A silent peer, or one that sends nonsense, never does.
  bool has_begun() const { return begun_; }

  int fd() const { return fd_.get(); }
  std::uint32_t events() const;
  const Caller& caller() const { return calls_peer_ ? caller_ : handshake_->caller(); }
  Fd take_fd() { return std::move(fd_); }
  bool is_local() const { return calls_peer_ ? addresses_[at_].is_local() : context_ == nullptr; }
  /// What came behind the handshake.
  std::string rest() { return handshake_->rest(); }
  /// TLS, for what follows; only once, at the end.
  std::unique_ptr<TlsSession> take_session() { return handshake_->take_session(); }
  /// Why the last address did not do, with the address.
  const std::string& why() const { return why_; }

 private:
  State fail(const std::string& why);
  State fail_elsewhere(const std::string& why);
  bool send();
  /// 0, an errno, or -1 where the other end has closed the connection.
  int receive();

  SocketCalls& calls_;
  std::unique_ptr<Handshake> new_handshake() const;

  const KeyContext* const context_;
  const bool calls_peer_;
  const Caller caller_{};
  const std::vector<CallAddress> addresses_;
  const std::int64_t handshake_ns_ = 0;
  std::vector<bool> reached_;  ///< by address
  std::size_t at_ = 0;
  int rounds_ = 0;  ///< through all addresses
  bool begun_ = false;
  Fd fd_;
  bool connecting_ = false, refused_ = false;
  Welcome answered_ = Welcome::none;
  std::int64_t slow_ns_ = 0;              ///< the address has until then
  std::unique_ptr<Handshake> handshake_;  ///< null before the connection stands, or before a caller says something
  std::string out_, why_;
};

}  // namespace hvd::transport::tcp

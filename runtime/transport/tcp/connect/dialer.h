/// @file dialer.h — makes connections between ranks: this rank calls other ranks, and accepts their calls.
///
/// If both ranks call at the same time, the call of the lower rank is used.  A failed call tries the peer's next
/// address.  A call repeats all addresses until its time limit.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "transport/tcp/connect/caller_places.h"
#include "transport/tcp/connect/link_plan.h"
#include "transport/tcp/connect/pending_link.h"

namespace hvd::transport::tcp {

/// Names a connection (lane).  The lanes between two ranks have numbers from 0.
struct LaneName {
  int peer = 0, number = 0;
  auto operator<=>(const LaneName&) const = default;
};

/// A connection after its handshake.  The epoll instance already watches the descriptor.
struct MadeLink {
  Fd fd;
  bool is_local = false;
  std::unique_ptr<TlsSession> session;  ///< the session of an encrypted connection; null: not encrypted
  std::string rest;                     ///< bytes that were received after the handshake
  std::uint64_t move = 0;               ///< Caller::move
};

/// Receives the results of calls.
class CallUser {
 public:
  virtual ~CallUser() = default;
  /// True if the peer has left or is lost, and needs no connection.
  virtual bool gone(int peer) const = 0;
  /// True if the lane is connected.
  virtual bool stands(LaneName lane) const = 0;
  /// The number of the call that has moved the first lane to its network; 1: none has.
  virtual std::uint64_t moved_by(int peer) const = 0;
  /// The peer asks this rank to move the first lane.
  virtual void asked_to_move(int peer) = 0;
  virtual void made(LaneName lane, MadeLink connection) = 0;
  /// The lane could not be connected within its time limit.
  virtual void failed(LaneName lane, const std::string& why) = 0;
};

class Dialer {
 public:
  /// All arguments must outlive this object.  The dialer adds its sockets to @p epoll.  Throws Error{unavailable}.
  Dialer(LinkPlan& plan, SocketCalls& calls, int epoll, CallUser& user);

  /// Starts to connect the lane.  Does nothing if a call for the lane has begun.
  void begin(LaneName lane);
  /// Starts to move the first lane to another network: tries network @p way of LinkPlan::ways() first.  Does nothing if
  /// a call for the lane has begun.  The higher rank of both asks the lower one, so that they never use two
  /// connections.
  void move(int peer, std::size_t way);
  /// Handles an epoll event of @p fd.  False: @p fd does not belong to the dialer.
  bool step(int fd);
  /// Repeats failed and slow calls at the next address.  Ends calls and callers whose time limit has passed.
  void step_all();
  /// True if this rank calls no peer, and no caller that can be a rank is in its handshake.
  bool none() const;
  /// Ends this rank's calls to the peer.
  void end(int peer);
  void end(LaneName lane) { calling_.erase(lane); }
  bool calls(LaneName lane) const { return calling_.count(lane) > 0; }
  /// Ends all calls, and closes the listening sockets.
  void end();
  /// The error of the last failed call to the peer: "rank 3 (10.0.0.7) cannot be reached: …"
  std::string why_not(int peer) const;
  /// True if an address of the peer has accepted an unfinished call.  The network then works, and another cause
  /// prevents the connection.
  bool reached(int peer) const;

 private:
  /// A call by this rank.
  struct Call {
    std::unique_ptr<PendingLink> pending;
    std::int64_t end_ns = 0;
    std::int64_t again_ns = 0;  ///< time of the next attempt; 0: an attempt is in progress
    std::string why;            ///< error of the last attempt
    bool reached = false;       ///< an earlier PendingLink has reached the peer
    bool moves = false;         ///< move(), not begin()
    std::size_t way = 0;        ///< of move()
  };
  /// A caller that has not finished its handshake.
  struct Called {
    std::unique_ptr<PendingLink> pending;
    std::int64_t since_ns = 0;
    Address source{};  ///< address of the caller; Address{}: a unix socket
  };
  void call(LaneName lane);
  std::vector<CallAddress> addresses(LaneName lane, const Call& call) const;
  void step(LaneName lane);
  bool watch(Call& call, int what);
  void give_up(Call& call);
  void accept(int listener, bool is_local);
  bool take_in(Fd fd, bool is_local);
  bool drop_one(const Address* source);
  void step_called(int fd);
  std::int64_t handshake_ns(std::int64_t now);
  Welcome decide(const Caller& caller);
  Welcome decide_move(int peer, std::uint64_t move);
  void made(LaneName lane, PendingLink& c);

  LinkPlan& plan_;
  SocketCalls& calls_;
  const int epoll_;
  CallUser& user_;
  const CallerPlaces places_;
  std::int64_t handshake_ns_ = 0;      ///< current limit of a handshake, adapted to the machine's load
  std::int64_t looked_ns_ = 0;         ///< time when handshake_ns_ was computed
  std::uint64_t move_ = 1;             ///< Caller::move of the last own call
  std::optional<KeyContext> context_;  ///< nullopt: this rank does not use TCP
  std::map<LaneName, Call> calling_;
  std::map<int, Called> called_;  ///< callers by descriptor
};

}  // namespace hvd::transport::tcp

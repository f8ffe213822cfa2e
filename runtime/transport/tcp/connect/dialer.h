/// @file dialer.h — connections between ranks while they are made: this rank calls, and is called.
///
/// Where both ends call at the same time, the call of the lower rank counts.  A call that fails goes on to the peer's
/// next address, and begins anew until its time is over.
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

/// Names a connection.  Those between two ranks, the lanes, are numbered from 0.
struct LaneName {
  int peer = 0, number = 0;
  auto operator<=>(const LaneName&) const = default;
};

/// The descriptor is in the epoll.
struct MadeLink {
  Fd fd;
  bool is_local = false;
  std::unique_ptr<TlsSession> session;  ///< what follows is encrypted; null: it is not
  std::string rest;                     ///< bytes that came behind the handshake
};

/// What becomes of calls.
class CallUser {
 public:
  virtual ~CallUser() = default;
  /// Nothing more is for that peer.
  virtual bool gone(int peer) const = 0;
  virtual bool stands(LaneName lane) const = 0;
  virtual void made(LaneName lane, MadeLink connection) = 0;
  /// It could not be made in time.
  virtual void failed(LaneName lane, const std::string& why) = 0;
};

class Dialer {
 public:
  /// All must outlive this.  @p epoll watches what is under way.  Throws Error{unavailable}.
  Dialer(LinkPlan& plan, SocketCalls& calls, int epoll, CallUser& user);

  /// There is need for this connection.  No effect on one that is being made.
  void begin(LaneName lane);
  /// False: the descriptor is not one of these.
  bool step(int fd);
  /// Calls that have failed go to the next address, and end at last.
  void step_all();
  /// Nothing is being made: nobody is called, and nobody calls who could be a rank.
  bool none() const;
  /// Nothing more is for that peer.
  void end(int peer);
  void end(LaneName lane) { calling_.erase(lane); }
  /// Nobody is called, or may call, any more.
  void end();
  /// What the peer's addresses have said: "rank 3 (10.0.0.7) cannot be reached: …"
  std::string why_not(int peer) const;
  /// An address of the peer has accepted a call that is still being made: something else than the network is in the
  /// way.
  bool reached(int peer) const;

 private:
  /// We call.
  struct Call {
    std::unique_ptr<PendingLink> pending;
    std::int64_t end_ns = 0;
    std::int64_t again_ns = 0;  ///< when to call next; 0: it is under way
    std::string why;            ///< the last try has failed
    bool reached = false;       ///< by an earlier PendingLink
  };
  /// Somebody who has not proved the key yet.
  struct Called {
    std::unique_ptr<PendingLink> pending;
    std::int64_t since_ns = 0;
    Address source{};  ///< Address{}: a unix socket
  };
  void call(LaneName lane);
  void step(LaneName lane);
  bool watch(Call& call, int what);
  void give_up(Call& call);
  void accept(int listener, bool is_local);
  bool take_in(Fd fd, bool is_local);
  bool drop_one(const Address* source);
  void step_called(int fd);
  std::int64_t handshake_ns(std::int64_t now);
  Welcome decide(const Caller& caller) const;
  void made(LaneName lane, PendingLink& c);

  LinkPlan& plan_;
  SocketCalls& calls_;
  const int epoll_;
  CallUser& user_;
  const CallerPlaces places_;
  std::int64_t handshake_ns_ = 0;      ///< that limit now, with this machine's load in it
  std::int64_t looked_ns_ = 0;         ///< at the load
  std::optional<KeyContext> context_;  ///< where there are other hosts
  std::map<LaneName, Call> calling_;
  std::map<int, Called> called_;  ///< by descriptor
};

}  // namespace hvd::transport::tcp

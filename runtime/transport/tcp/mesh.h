/// @file mesh.h — the connections of one rank to others, and the messages on them.
///
/// A connection is made when the first message for a peer is sent; both directions use it.  Between two ranks there
/// are several, the lanes: small messages go over the first, so that they never wait behind large ones, which go over
/// the others.  Where both ends call at the same time, the call of the lower rank counts.
///
/// A message of at most eager_bytes, and each of a control stream, is sent at once; what comes before its receive is
/// kept.  A larger one waits until the receiver says that its memory is there (FrameKind::room): nothing is kept, and
/// nobody's bytes stand in the way of others on a connection, however slow a peer is.
///
/// Ranks are the world's.  Thread: one at a time.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/revocation.h"
#include "transport/tcp/connecting.h"
#include "transport/tcp/lane.h"
#include "transport/tcp/unix_listener.h"
#include "transport/transport.h"

namespace hvd::transport::tcp {

struct MeshPlan {
  JobKey key{};
  int rank = 0;
  std::vector<ListenAddress> ranks;   ///< [size]
  std::vector<int> hosts;             ///< [size] ranks with the same number share a machine
  Fd listener;                        ///< for other hosts; empty: there are none
  std::optional<UnixListener> local;  ///< for processes of this host
  int bulk_lanes = 1;                 ///< connections to a peer for large messages
  double limit_seconds = 60;          ///< for a connection to be made
  double again_seconds = 0.05;        ///< after a call that failed; the other end's own call has 40 times as long
  double leave_seconds = 1;           ///< what has been sent leaves within it
  std::shared_ptr<const Revocation> revocation;
};

class Mesh final : public FrameHandler {
 public:
  /// Names the messages that must not mix.
  struct Channel {
    int peer = 0;
    int stream = 0;
    Tag tag = Tag::data;
    auto operator<=>(const Channel&) const = default;
  };

  /// @p calls must outlive this.  Throws Error{unavailable}.
  Mesh(MeshPlan plan, SocketCalls& calls);
  /// What has been sent leaves, within leave_seconds.
  ~Mesh() override;
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  /// As Transport::isend, irecv, test and abandon.  What a peer that is gone would have to take of a control stream is
  /// dropped.
  Ticket send(const Channel& to, const void* data, std::size_t bytes);
  Ticket receive(const Channel& from, void* data, std::size_t bytes);
  bool test(Ticket ticket);
  void abandon(Ticket ticket);
  /// The oldest message of a control stream.  from: a rank of the world.
  std::optional<Message> poll(int stream, Tag tag);
  /// What came for a stream that nobody uses any more goes.
  void forget(int stream);

  /// Moves what can be moved.
  void progress();
  /// Readable when there is something to move.
  int fd() const { return epoll_.get(); }
  /// Sleeps until then, at most so long.
  void nap(std::int64_t ns);
  /// Peers whose connections have ended without a goodbye.
  std::vector<LostPeer> lost() const;
  /// Peers whose kernels have not answered for silent_ms, though they are asked once a second.  A system call for each
  /// connection.
  std::vector<LostPeer> silent() const;
  /// Why the world is over; empty: it is not.
  std::string revoked() const;
  /// Connections that stand.
  int connections() const;
  /// "rank 3 (10.0.0.7)"
  std::string name(int peer) const;
  /// Where there is no connection to the peer yet: what its addresses have said.
  std::string why_not(int peer);

 private:
  struct Request {
    bool used = false, sends = false;
    Channel channel;
    std::uint32_t number = 0;
    std::size_t left = 0;  ///< frames to send, or bytes to receive
    const char* data = nullptr;
    std::size_t bytes = 0;
  };
  struct Posted {
    unsigned char* data = nullptr;  ///< nullptr: abandoned, the bytes are dropped
    std::size_t bytes = 0, left = 0;
    Ticket ticket = 0;
  };
  struct Outgoing {
    std::uint32_t next = 0;
    std::set<std::uint32_t> room;             ///< the receiver is ready for these
    std::map<std::uint32_t, Ticket> waiting;  ///< for room
  };
  struct Incoming {
    std::uint32_t next = 0;
    std::map<std::uint32_t, Posted> posted;
    std::map<std::uint32_t, std::string> early;
  };
  struct Link {
    std::unique_ptr<Lane> lane;
    std::unique_ptr<Connecting> connecting;  ///< we call
    std::deque<OutFrame> waiting;
    std::int64_t end_ns = 0;    ///< for connecting
    std::int64_t again_ns = 0;  ///< when to call next; 0: at once
    std::string why;            ///< the last call failed
  };
  struct Peer {
    std::vector<Link> links;  ///< by lane; empty: no need for it yet
    std::uint32_t byes = 0;   ///< lanes on which it has said so
    bool departed = false;
    std::string lost;  ///< why; empty: it is not
  };

  unsigned char* place(Lane& lane, const FrameHeader& header) override;
  void arrived(Lane& lane, const FrameHeader& header) override;
  void left(const OutFrame& frame) override;

  Request& request(Ticket ticket) { return requests_[ticket - 1]; }
  Ticket keep(Request r);
  void release(Ticket ticket);
  bool is_control(Tag tag) const { return tag != Tag::data && tag != Tag::second; }
  bool gone(int peer) const;
  std::string why_gone(int peer) const;
  Peer& peer(int rank);
  void add(int peer, int lane, OutFrame frame);
  void send_large(Ticket ticket);
  void push(Lane& lane);
  void watch(Lane& lane);
  bool watch(Link& link, int what);
  void call(int peer, int lane);
  void step_calls();
  void step(Connecting& c, int peer, int lane);
  void step_called(int fd);
  void accept(int listener, bool is_local);
  Welcome decide(const Caller& caller);
  void establish(Connecting& c, int peer, int lane);
  void serve(Lane& lane, std::uint32_t events);
  void end(Lane& lane, int error);
  void lose(int peer, const std::string& why);
  void end_calls(int peer);
  void end_all();
  static void say_bye(Peer& p);
  bool quiet() const;

  MeshPlan plan_;
  SocketCalls& calls_;
  std::optional<KeyContext> context_;  ///< where there are other hosts
  const std::vector<Address> own_addresses_;
  Fd epoll_;
  std::vector<std::unique_ptr<Peer>> peers_;  ///< [size]; nullptr: never spoken to
  std::unordered_map<int, Lane*> lanes_;      ///< by descriptor
  struct Called {
    std::unique_ptr<Connecting> connecting;
    std::int64_t end_ns = 0;
  };
  std::map<int, Called> called_;              ///< by descriptor: who has not proved the key yet
  std::set<std::pair<int, int>> calling_;     ///< (peer, lane) without a connection
  std::vector<std::unique_ptr<Lane>> ended_;  ///< until nobody is within them
  std::map<Channel, Outgoing> outgoing_;
  std::map<Channel, Incoming> incoming_;
  std::map<std::pair<int, Tag>, std::deque<Message>> inbox_;  ///< by stream and tag
  std::map<const Lane*, std::string> arriving_;               ///< a message that has no receive
  std::vector<Request> requests_;
  std::vector<Ticket> free_;
  std::int64_t moved_ns_ = 0;
  bool revoked_ = false;
};

}  // namespace hvd::transport::tcp

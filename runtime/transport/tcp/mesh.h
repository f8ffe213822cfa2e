/// @file mesh.h — the messages between one rank and the others, over its connections.
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
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "transport/tcp/connections.h"
#include "transport/tcp/part_sender.h"
#include "transport/transport.h"

namespace hvd::transport::tcp {

class Mesh final : public ConnectionUser {
 public:
  /// Names the messages that must not mix.
  struct Channel {
    int peer = 0;
    int stream = 0;
    Tag tag = Tag::data;
    auto operator<=>(const Channel&) const = default;
  };

  /// @p calls must outlive this.  Throws Error{unavailable}.
  Mesh(ConnectionPlan plan, SocketCalls& calls);
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
  /// As Transport::flush.
  bool flush() { return connections_.flush(); }
  /// Readable when there is something to move.
  int fd() const { return connections_.fd(); }
  /// Sleeps until then, at most so long.
  void nap(std::int64_t ns) { connections_.nap(ns); }
  /// Peers whose connections have ended without a goodbye.
  std::vector<LostPeer> lost() const { return connections_.lost(); }
  /// Peers whose kernels have not answered for some seconds, though they are asked once a second.  A system call for
  /// each connection.
  std::vector<LostPeer> silent() const { return connections_.silent(); }
  /// As Transport::links.
  std::vector<LinkUse> links() const { return connections_.links(); }
  /// Why the world is over; empty: it is not.
  std::string revoked() const { return connections_.revoked(); }
  /// Connections that stand.
  int connections() const { return connections_.count(); }
  /// "rank 3 (10.0.0.7)"
  std::string name(int peer) const { return connections_.name(peer); }
  /// Where there is no connection to the peer yet: what its addresses have said.
  std::string why_not(int peer) const { return connections_.why_not(peer); }

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
    std::vector<bool> came;  ///< parts, where several cards carry them
  };
  struct Outgoing {
    std::uint32_t next = 0;
    std::set<std::uint32_t> room;             ///< the receiver is ready for these
    std::map<std::uint32_t, Ticket> waiting;  ///< for room
    std::map<std::uint32_t, Ticket> going;    ///< in parts, until the receiver has them
  };
  struct Incoming {
    std::uint32_t next = 0;
    std::map<std::uint32_t, Posted> posted;
    std::map<std::uint32_t, std::string> early;
  };

  unsigned char* place(Lane& lane, const FrameHeader& header) override;
  void arrived(Lane& lane, const FrameHeader& header) override;
  void left(Lane& lane, const OutFrame& frame) override;
  void lane_ended(const Lane& lane) override;
  void peer_lost(int peer) override;

  Request& request(Ticket ticket) { return requests_[ticket - 1]; }
  Ticket keep(Request r);
  void release(Ticket ticket);
  bool is_control(Tag tag) const { return tag != Tag::data && tag != Tag::second; }
  void room(const Channel& channel, std::uint32_t number);
  void arrived_whole(const Channel& channel, std::uint32_t number, std::string body);
  void send_large(Ticket ticket);
  void fill(int peer);
  unsigned char* place_part(const Channel& channel, const FrameHeader& header);
  void part_arrived(const Channel& channel, const FrameHeader& header);
  void done(const Channel& channel, std::uint32_t number);
  void answer(FrameKind kind, const Channel& channel, std::uint32_t number);

  Connections connections_;
  PartSender parts_;
  std::map<Channel, Outgoing> outgoing_;
  std::map<Channel, Incoming> incoming_;
  std::map<std::pair<int, Tag>, std::deque<Message>> inbox_;  ///< by stream and tag
  std::map<const Lane*, std::string> arriving_;               ///< a message that has no receive
  std::vector<Request> requests_;
  std::vector<Ticket> free_;
};

}  // namespace hvd::transport::tcp

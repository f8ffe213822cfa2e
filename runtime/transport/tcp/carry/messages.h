/// @file messages.h — the messages between one rank and the others, over its connections.
///
/// A message of at most eager_bytes, and each message of a control stream, is sent at once.  The receiver keeps a
/// message that comes before its receive (receives.h).  A sender waits while the receiver keeps too much
/// (message_channel.h). A larger message waits for the receiver's FrameKind::room, so it is never kept.  A slow peer
/// thus blocks no other message on a connection.
///
/// A peer that sends what no rank of this version sends is lost, and the error names it.
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

#include "transport/tcp/carry/message_channel.h"
#include "transport/tcp/carry/part_sender.h"
#include "transport/tcp/carry/receives.h"
#include "transport/tcp/carry/stream_table.h"
#include "transport/tcp/connect/links.h"
#include "transport/transport.h"

namespace hvd::transport::tcp {

class Messages final : public LinksUser, private ReceivesUser {
 public:
  /// @p calls must outlive this.  Throws Error{unavailable}.
  Messages(LinkPlan plan, SocketCalls& calls);
  /// Waits until all sent messages have reached the peers' kernels, at most leave_seconds.
  ~Messages() override;
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  /// As Transport::isend, irecv, test and abandon.  A message of a control stream to a lost or departed peer is
  /// dropped.
  Ticket send(const Channel& to, const void* data, std::size_t bytes);
  Ticket receive(const Channel& from, void* data, std::size_t bytes);
  bool test(Ticket ticket);
  void abandon(Ticket ticket);
  /// The oldest message of a control stream.  from: a rank of the world.
  std::optional<Message> poll(int stream, Tag tag);
  /// This rank uses the stream from now on.  @p members: ranks of the world, the only ones that may send.  Stream 0 is
  /// open from the beginning.  Throws Error{internal} where @p stream is no larger than one before it.
  void open(int stream, const std::vector<int>& members);
  /// Drops all messages of @p stream, also those that come later.  The caller uses the stream no more, and all of its
  /// tickets are done or abandoned.
  void forget(int stream);

  /// Moves what can be moved.
  void progress();
  /// As Transport::flush.
  bool flush() { return links_.flush(); }
  /// Readable when there is something to move.
  int fd() const { return links_.fd(); }
  /// Sleeps until fd() is readable, at most @p ns nanoseconds.
  void nap(std::int64_t ns) { links_.nap(ns); }
  /// Peers whose connections have ended without a goodbye.
  std::vector<LostPeer> lost() const { return links_.lost(); }
  /// Peers whose kernels have not answered for some seconds, though they are asked once a second.  A system call for
  /// each connection.
  std::vector<LostPeer> silent() const { return links_.silent(); }
  /// As Transport::links.
  std::vector<LinkUse> links() const { return links_.links(); }
  /// Why the world is over; empty: it is not.
  std::string revoked() const { return links_.revoked(); }
  /// Links that stand.
  int connections() const { return links_.count(); }
  /// "rank 3 (10.0.0.7)"
  std::string name(int peer) const { return links_.name(peer); }
  /// Before the connection to the peer stands: the results of the calls to its addresses.
  std::string why_not(int peer) const { return links_.why_not(peer); }
  /// Before the connection stands: true if some address of the peer accepts calls.
  bool reached(int peer) const { return links_.reached(peer); }
  /// What is kept of streams and channels: for tests.
  const Receives& receives() const { return receives_; }

 private:
  struct Request {
    bool used = false, sends = false;
    Channel channel;
    std::uint32_t number = 0;
    std::size_t left = 0;  ///< frames to send; of a receive 1, until its message is there
    const char* data = nullptr;
    std::size_t bytes = 0;
  };
  struct Outgoing {
    std::uint32_t next = 0;
    std::set<std::uint32_t> room;             ///< the receiver is ready for these, which have not been sent yet
    std::map<std::uint32_t, Ticket> waiting;  ///< for room
    std::map<std::uint32_t, Ticket> going;    ///< in parts, until the receiver has them
    std::deque<Ticket> held;                  ///< small messages, until the receiver has taken more of the earlier ones
    std::uint64_t untaken = 0;                ///< counted bytes sent, for which no FrameKind::credit has come
  };

  unsigned char* place(Lane& lane, const FrameHeader& header) override;
  void arrived(Lane& lane, const FrameHeader& header) override;
  void left(Lane& lane, const OutFrame& frame) override;
  void lane_ended(const Lane& lane) override;
  void peer_lost(int peer) override;

  void answer(FrameKind kind, const Channel& channel, std::uint32_t number, std::uint64_t at) override;
  void received(Ticket ticket) override { request(ticket).left = 0; }
  bool parts_repeat(int peer) override { return links_.has_spares(peer); }
  void drop_arriving(int peer, const std::function<bool(const FrameHeader&)>& drops) override {
    links_.drop_arriving(peer, drops);
  }

  Request& request(Ticket ticket) { return requests_[ticket - 1]; }
  Ticket keep(Request r);
  void release(Ticket ticket);
  Outgoing* outgoing(const Channel& channel);
  void send_small(Ticket ticket, Outgoing& out);
  void send_large(Ticket ticket, Outgoing& out);
  void abandon_send(Ticket ticket, const Request& r);
  void forget_channels(int stream);
  void room(const Channel& channel, std::uint32_t number);
  void done(const Channel& channel, std::uint32_t number);
  void credit(const Channel& channel, std::uint64_t bytes);
  void fill(int peer);

  Links links_;
  PartSender parts_;
  StreamTable streams_;
  Receives receives_;
  std::map<Channel, Outgoing> outgoing_;
  std::vector<Request> requests_;
  std::vector<Ticket> free_;
};

}  // namespace hvd::transport::tcp

/// @file messages.h — the messages between this rank and the other ranks, over its connections.
///
/// Control messages, and other messages of at most eager_bytes, are sent immediately.  The receiver keeps a message
/// that arrives before its receive is posted (receives.h).  The sender waits while the receiver keeps too many bytes
/// (message_channel.h).  A larger message waits for the receiver's FrameKind::room, so the receiver never keeps large
/// messages.  So a slow receiver does not block other messages on the connection.
///
/// If a peer sends a frame that no rank of this version sends, the peer is lost.  The error names the peer.
///
/// All ranks here are ranks of the world.  Thread: one at a time, except fd() and nap().
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
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
  /// Waits until the peers' kernels have all sent messages, for at most LinkPlan::leave_seconds.
  ~Messages() override;
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  /// The functions of Transport::isend, irecv, test and abandon.  A control message to a lost or departed peer is
  /// dropped.  send() throws Error{internal} if the message is too large.
  /// @p owner: owns the data; null: the caller keeps the data until test() returns true.
  Ticket send(const Channel& to, const void* data, std::size_t bytes,
              std::shared_ptr<const std::string> owner = nullptr);
  Ticket send(const Channel& to, const std::shared_ptr<std::string>& body) {
    return send(to, body->data(), body->size(), links_.has_spares(to.peer) ? body : nullptr);
  }
  Ticket receive(const Channel& from, void* data, std::size_t bytes);
  bool test(Ticket ticket);
  void abandon(Ticket ticket);
  /// Returns the oldest control message of this stream and tag.  Message::from is a rank of the world.  The call after
  /// one that returned a message does not look at the network.
  std::optional<Message> poll(int stream, Tag tag);
  /// Opens a stream for this rank.  Only the @p members, which are ranks of the world, may send messages of the stream.
  /// Stream 0 is always open.  Throws Error{internal} unless @p stream is larger than all earlier streams.
  void open(int stream, const std::vector<int>& members);
  /// Closes @p stream, and drops all its messages, also messages that arrive later.  The caller must not use the stream
  /// again.  All its tickets must be done or abandoned.
  void forget(int stream);

  /// Sends and receives without waiting.
  void progress();
  /// The function of Transport::flush.
  bool flush() { return links_.flush(); }
  /// An epoll descriptor.  Readable when progress() has work.
  int fd() const { return links_.fd(); }
  /// Sleeps until fd() is readable, at most @p ns nanoseconds.
  void nap(std::int64_t ns) { links_.nap(ns); }
  /// Peers whose connections ended without a goodbye.
  std::vector<LostPeer> lost() const { return links_.lost(); }
  /// Peers whose kernels have answered no keepalive probe for some seconds.  The kernel sends a probe each second.
  /// Makes a system call for each connection.
  std::vector<LostPeer> silent() const { return links_.silent(); }
  /// The function of Transport::links.
  std::vector<LinkUse> links() const { return links_.links(); }
  /// The reason why the world has ended.  Empty: the world has not ended.
  std::string revoked() const { return links_.revoked(); }
  /// The number of established connections.
  int connections() const { return links_.count(); }
  /// "rank 3 (10.0.0.7)"
  std::string name(int peer) const { return links_.name(peer); }
  /// Until the connection to the peer is established: why the last connection attempt failed.
  std::string why_not(int peer) const { return links_.why_not(peer); }
  /// Until the connection is established: true if an address of the peer has accepted a connection.
  bool reached(int peer) const { return links_.reached(peer); }
  /// For tests.
  const Receives& receives() const { return receives_; }

 private:
  struct Request {
    bool used = false, sends = false;
    Channel channel;
    std::uint32_t number = 0;
    std::size_t left = 0;  ///< send: frames left to send; receive: 1 until the message has arrived
    const char* data = nullptr;
    std::size_t bytes = 0;
    std::shared_ptr<const std::string> owner;  ///< send: see send()
  };
  struct Outgoing {
    std::uint32_t next = 0;
    std::set<std::uint32_t> room;             ///< messages without a send yet, for which the receiver is ready
    std::map<std::uint32_t, Ticket> waiting;  ///< large messages that wait for FrameKind::room
    std::map<std::uint32_t, Ticket> going;    ///< messages sent in parts, until FrameKind::done
    std::deque<Ticket> held;                  ///< small messages that wait for FrameKind::credit
    std::uint64_t untaken = 0;                ///< counted bytes sent without a FrameKind::credit
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
  bool polled_ = false;  ///< the last poll() returned a message
};

}  // namespace hvd::transport::tcp

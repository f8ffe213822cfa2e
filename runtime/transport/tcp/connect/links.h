/// @file links.h — the connections (lanes) of this rank to the other ranks.
///
/// A lane is connected when its first frame is added.  Both ends send on the same lane.  Two ranks have several lanes.
/// The first lane carries small frames, and the other lanes carry large frames.  So small frames never wait for large
/// frames.  If several network interfaces reach the peer's host, each further interface has a spare lane.  Then any
/// lane may end, and the peer still counts as reached.  The first lane moves to the network of another interface.
///
/// All ranks here are ranks of the world.  Thread: one at a time, except fd() and nap().
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/tcp/connect/dialer.h"
#include "transport/tcp/stream/lane.h"
#include "transport/transport.h"

namespace hvd::transport::tcp {

/// The reason for the end of a connection.  @p error: a result of Lane::receive() or Lane::send() other than 0.
std::string how_ended(int error);

/// Receives the events of connections and frames.
class LinksUser : public FrameHandler {
 public:
  /// Called when no more frames will arrive on the lane.
  virtual void lane_ended(const Lane& lane) = 0;
  /// Called when all connections to the peer have ended without a goodbye.
  virtual void peer_lost(int peer) = 0;
};

class Links final : private CallUser {
 public:
  /// @p calls and @p user must outlive this.  Throws Error{unavailable}.
  Links(LinkPlan plan, SocketCalls& calls, LinksUser& user);
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  /// Sends a frame.  Connects the lane if needed.  Drops the frame if the peer is gone.
  void add(int peer, int lane, OutFrame frame);

  /// @name Parts of large messages to a peer that several network interfaces reach
  /// @{
  /// True if several network interfaces reach the peer.
  bool has_spares(int peer) { return !this->peer(peer).ways.empty(); }
  /// Each lane with room sends the part that @p next(lane) returns, until @p next returns nullopt.  Also connects
  /// missing lanes.
  void fill(int peer, const std::function<std::optional<OutFrame>(int)>& next);
  /// @}
  /// Sends and receives without waiting.
  void progress();
  /// An epoll descriptor.  Readable when progress() has work.
  int fd() const { return epoll_.get(); }
  /// Sleeps until fd() is readable, at most @p ns nanoseconds.
  void nap(std::int64_t ns);
  /// Says goodbye to all peers.  Waits until their kernels have all sent bytes, for at most LinkPlan::leave_seconds.
  void leave();

  /// True if the peer has left in order, or is lost.
  bool gone(int peer) const override;
  std::string why_gone(int peer) const;
  /// A goodbye has arrived on @p lane.  The peer says goodbye on @p lanes lanes.  Throws Error{internal} if no rank of
  /// this version says this goodbye.
  void said_bye(Lane& lane, std::uint32_t lanes);
  /// Stops reading the memory of the ticket (Lane::forget).  @return the number of frames that are never sent
  std::size_t forget(int peer, std::uint64_t ticket);
  /// For each frame from @p peer that is arriving: if @p drops returns true, drops the remaining bytes of the frame.
  void drop_arriving(int peer, const std::function<bool(const FrameHeader&)>& drops);

  /// The function of Transport::flush.
  bool flush();

  /// The functions of Messages with the same names; count() is Messages::connections.
  std::vector<LostPeer> lost() const;
  std::vector<LostPeer> silent() const;
  std::vector<LinkUse> links() const;
  std::string revoked() const;
  int count() const { return static_cast<int>(lanes_.size()); }
  int bulk_lanes() const { return plan_.bulk_lanes; }
  std::string name(int peer) const { return plan_.name(peer); }
  std::string why_not(int peer) const { return dialer_.why_not(peer); }
  bool reached(int peer) const { return dialer_.reached(peer); }

 private:
  static constexpr std::int64_t look_ns = 500'000'000;  ///< time between checks for silent lanes
  static constexpr unsigned silent_ms = 2500;  ///< time without an acknowledgement after which a lane counts as silent
  struct Link {
    std::unique_ptr<Lane> lane;
    std::deque<OutFrame> waiting;  ///< frames that wait for the connection
    std::string why_not;           ///< not empty: why the lane has ended or could not be made
    std::int64_t again_ns = 0;     ///< time of the next call for the lane
    bool told = false;             ///< why_not has been logged
    void fail(const std::string& why);
  };
  struct Peer {
    std::vector<Link> links;  ///< [lanes]
    /// LinkPlan::ways().  Lanes 0 to bulk_lanes use the first network.  Each spare lane uses one of the other networks.
    std::vector<SharedNetwork> ways;
    std::size_t first_way = 0;    ///< index in `ways` of the network of the first lane
    std::uint64_t moved_by = 1;   ///< CallUser::moved_by
    std::int64_t looked_ns = 0;   ///< time of the last check for silent lanes
    std::uint32_t byes = 0;       ///< lanes on which the peer has said goodbye
    std::uint32_t bye_lanes = 0;  ///< lanes on which the peer says goodbye in total
    bool departed = false;
    std::string lost;  ///< the reason of the loss; empty: the peer is not lost
  };

  bool stands(LaneName lane) const override;
  void made(LaneName lane, MadeLink connection) override;
  void failed(LaneName lane, const std::string& why) override;
  std::uint64_t moved_by(int peer) const override { return peers_[static_cast<std::size_t>(peer)]->moved_by; }
  void asked_to_move(int peer) override { move_first(peer); }

  Peer& peer(int rank);
  void push(Lane& lane);
  void watch(Lane& lane);
  void serve(Lane& lane, std::uint32_t events);
  void end(Lane& lane, int error);
  void take_down(Link& link);
  bool is_up(const Lane& lane) const;
  void depart(int peer);
  static Lane* lane_with_room(const Peer& p);
  void begin_one_of_several(Link& link, LaneName lane);
  void note_way(const Lane& first);
  void call_spares(int peer);
  void end_silent(int peer);
  /// @name The first lane moves to another network (links_move.cc)
  /// @{
  void look_at_first_lanes(std::int64_t now);
  void move_first(int peer);
  bool may_move(const Lane& lane, int error) const;
  void interrupt(Lane& lane);
  void receive_rest(Lane& lane);
  void moved(LaneName lane, MadeLink connection);
  void could_not_move(int peer, const std::string& why);
  /// @}
  const SharedNetwork* way(LaneName lane) const;
  std::string way_text(LaneName lane);
  void lose(int peer, const std::string& why);
  void end_calls(int peer);
  void end_all();
  void say_bye(int peer);
  void say_bye(Peer& p, Link& link);
  bool quiet() const;

  LinkPlan plan_;
  SocketCalls& calls_;
  LinksUser& user_;
  Fd epoll_;
  Dialer dialer_;
  std::vector<std::unique_ptr<Peer>> peers_;  ///< [size]; nullptr: this rank has never used the peer
  std::unordered_map<int, Lane*> lanes_;      ///< established lanes by descriptor
  int full_ = 0;                              ///< lanes with bytes that the kernel does not accept yet
  std::vector<std::unique_ptr<Lane>> ended_;  ///< ended lanes, kept until no caller uses them
  std::int64_t moved_ns_ = 0;                 ///< time of the last progress()
  bool revoked_ = false, leaving_ = false;
  std::vector<int> by_several_;  ///< used peers that several network interfaces reach
  std::int64_t looked_ns_ = 0;   ///< time of the last look_at_first_lanes()
};

}  // namespace hvd::transport::tcp

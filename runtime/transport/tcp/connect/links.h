/// @file links.h — the connections of one rank to others: watched together, and ended.
///
/// A connection is made when the first frame for it is added; both directions use it.  Between two ranks there are
/// several, the lanes: small frames go over the first, so that they never wait behind large ones, which go over the
/// others.  Where several network interfaces of each host reach the other host, each further one has a spare lane.  All
/// lanes but the first may then end without the loss of the peer.
///
/// Ranks are the world's.  Thread: one at a time.
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

/// What is told of connections, besides frames.
class LinksUser : public FrameHandler {
 public:
  /// Nothing more comes on this one.
  virtual void lane_ended(const Lane& lane) = 0;
  /// All connections to that peer have ended without a goodbye.
  virtual void peer_lost(int peer) = 0;
};

class Links final : private CallUser {
 public:
  /// @p calls and @p user must outlive this.  Throws Error{unavailable}.
  Links(LinkPlan plan, SocketCalls& calls, LinksUser& user);
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  void add(int peer, int lane, OutFrame frame);

  /// @name Parts of large messages, where several network interfaces reach the peer
  /// @{
  bool has_spares(int peer) { return !this->peer(peer).ways.empty(); }
  /// Lanes that have room take parts of @p next(lane), while there are some; lanes that are missing are called.
  void fill(int peer, const std::function<std::optional<OutFrame>(int)>& next);
  /// @}
  /// Moves what can be moved.
  void progress();
  /// Readable when there is something to move.
  int fd() const { return epoll_.get(); }
  /// Sleeps until then, at most so long.
  void nap(std::int64_t ns);
  /// What has been sent leaves, within leave_seconds.
  void leave();

  /// The peer has left in order, or is lost.
  bool gone(int peer) const override;
  std::string why_gone(int peer) const;
  /// A goodbye has come on @p lane.  The peer says goodbye on @p lanes lanes.
  void said_bye(Lane& lane, std::uint32_t lanes);
  /// The memory of a frame that has not left must no longer be read (Lane::forget).  @return frames that never leave.
  std::size_t forget(int peer, std::uint64_t ticket);
  /// Of a frame that is arriving and that @p drops: its bytes go nowhere.
  void drop_arriving(int peer, const std::function<bool(const FrameHeader&)>& drops);

  /// As Transport::flush.
  bool flush();

  /// As Messages has them.
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
  static constexpr unsigned silent_ms = 2500;
  struct Link {
    std::unique_ptr<Lane> lane;
    std::deque<OutFrame> waiting;  ///< for the connection
    std::string why_not;           ///< where the peer has others: it has ended, or could not be made
    std::int64_t again_ns = 0;     ///< then: when to call again
    bool told = false;             ///< of it
    void fail(const std::string& why);
  };
  struct Peer {
    std::vector<Link> links;  ///< by lane
    /// Of LinkPlan::ways(): the first lanes have the first, spare ones the others.
    std::vector<SharedNetwork> ways;
    std::int64_t looked_ns = 0;   ///< for silent lanes
    std::uint32_t byes = 0;       ///< lanes on which it has said that it leaves
    std::uint32_t bye_lanes = 0;  ///< lanes on which it will say so
    bool departed = false;
    std::string lost;  ///< why; empty: it is not
  };

  bool stands(LaneName lane) const override;
  void made(LaneName lane, MadeLink connection) override;
  void failed(LaneName lane, const std::string& why) override;

  Peer& peer(int rank);
  void push(Lane& lane);
  void watch(Lane& lane);
  void serve(Lane& lane, std::uint32_t events);
  void end(Lane& lane, int error);
  void take_down(Link& link);
  bool is_up(const Lane& lane) const;
  void depart(int peer);
  static Lane* lane_with_room(const Peer& p);
  void begin_spare(Link& link, LaneName lane);
  void call_spares(int peer);
  void end_silent(int peer);
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
  std::vector<std::unique_ptr<Peer>> peers_;  ///< [size]; nullptr: never spoken to
  std::unordered_map<int, Lane*> lanes_;      ///< by descriptor
  int full_ = 0;                              ///< lanes whose network has no room for what they have
  std::vector<std::unique_ptr<Lane>> ended_;  ///< until nobody is within them
  std::int64_t moved_ns_ = 0;
  bool revoked_ = false, leaving_ = false;
};

}  // namespace hvd::transport::tcp

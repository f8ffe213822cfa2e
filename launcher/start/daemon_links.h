/// @file daemon_links.h — hvdrun's conversation with the host daemons.
///
/// The conversation is about the daemons' start and end, the ranks' meetings (meeting_hub.h), and PMIx between hosts
/// (pmix_hub.h).
#pragma once
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "launcher/events/job_event.h"
#include "launcher/start/meeting_hub.h"
#include "launcher/start/pmix_hub.h"
#include "wire/channel/channel.h"
#include "wire/manifest/daemon_manifest.h"
#include "wire/messages/hello.h"
#include "wire/messages/message.h"

namespace hvd::launcher {

class DaemonLinks {
 public:
  /// @param events  gets the daemons' reports, within receive()
  DaemonLinks(wire::Listener& listener, wire::DaemonManifest manifest, EventSink events);

  /// Takes a daemon's hello.  Once all daemons have come, they get their manifests and start their ranks.  So no rank
  /// runs in a job that lacks a host.  False: the job has no such host, its daemon has come before, or its daemon was
  /// given up.
  bool greet(const wire::PeerId& from, const wire::Hello& hello);
  bool all_have_come() const { return host_of_.size() == links_.size(); }
  /// The channel has taken all messages.
  bool is_quiet() const { return behind_.empty(); }
  /// Each daemon's connection has ended, or the daemon was given up.
  bool all_are_gone() const { return num_gone_ == links_.size(); }
  /// False when @p from is not the connection of a daemon.
  bool receive(const wire::PeerId& from, const wire::Frame& frame);
  /// Sends messages that the channel did not take before.
  void flush();
  /// The host of a daemon's connection, or of a rank.  -1: the connection is no daemon's, or the rank does not exist.
  int host_of(const wire::PeerId& peer) const;
  int host_of(int rank) const;
  /// The connection of a host's daemon; empty: the daemon has not come.
  const wire::PeerId& peer_of(int host) const { return links_[static_cast<std::size_t>(host)].peer; }
  /// Call it when the rank has ended, or will not start.  Notifies ranks that wait for it in a meeting.  With @p died,
  /// also notifies the other members of its world.  @param why  one line that names the rank
  void end_rank(int rank, const std::string& why, bool died);
  /// Call it when a connection has ended for good.  For a daemon's connection, notifies hosts and ranks that wait for
  /// its host.
  void lose(const wire::PeerId& peer);
  /// A daemon has moved its connection to another network.
  void take(const wire::Listener::Move& move);
  /// True if a daemon has moved to another network.  The process that started it (ssh, for example) may then have lost
  /// its connection, while the daemon lives.
  bool any_has_moved() const { return has_moved_; }
  /// Makes the daemons of other hosts end, with their ranks, as if hvdrun had ended.
  void stop() { tell_all(wire::Type::stop); }

  // For elastic jobs (meeting_hub.h):
  void hold_strangers() { meetings_.hold_strangers(); }
  void invite(std::vector<std::int32_t> ranks);
  void dismiss(int rank);
  /// Answers the event NextWorldAsked.  @param ranks  of the next world, with the asking rank
  void tell_next_world(const wire::MeetingMessage& question, const std::vector<std::int32_t>& ranks) {
    send(meetings_.tell_expected(question, ranks));
  }
  /// Adds a host; the caller starts its daemon.  Returns the host's number.
  int add_host(const std::string& name);
  /// Adds a rank with the next number, and tells the host's daemon to start a guard for it.
  /// @param begins_with_daemon  the daemon's command line has the rank, so no message is sent
  void start_rank(int host, bool begins_with_daemon);
  /// Stops waiting for this host's daemon, if the daemon has not come yet.  If the daemon comes later, it is refused.
  void give_up(int host);
  bool is_gone(int host) const { return links_[static_cast<std::size_t>(host)].gone; }
  bool has_come(int host) const { return !links_[static_cast<std::size_t>(host)].peer.empty(); }
  /// No rank will be started any more: daemons without guards end.
  void release() { tell_all(wire::Type::release); }

 private:
  struct DaemonLink {
    wire::PeerId peer;  ///< empty: the daemon has not come
    bool gone = false, started = false;
    std::deque<std::shared_ptr<const wire::Frame>> queue{};  ///< many hosts share one frame
  };
  void lose(DaemonLink& link);
  void tell_all(wire::Type type);
  void take_pmix(int host, const std::string& body);
  void take_meeting(int host, const wire::MeetingMessage& message);
  void tell_world(const MeetingHub::Answers& answers);
  void emit(const JobEvent& event) const {
    if (events_) events_(event);
  }
  void send(const PmixHub::Outgoing& messages);
  void send(const MeetingHub::Answers& answers);
  void flush(std::size_t host);

  wire::Listener& listener_;
  wire::DaemonManifest manifest_;
  std::shared_ptr<const wire::Frame> manifest_frame_;  ///< manifest_ as a message; null: not needed yet
  const EventSink events_;
  std::vector<int> host_of_rank_;
  const int first_hosts_;          ///< how many hosts the job had at its start
  std::vector<DaemonLink> links_;  ///< [hosts]
  std::unordered_map<wire::PeerId, int> host_of_;
  std::set<std::size_t> behind_;  ///< hosts with a queue
  std::size_t num_gone_ = 0;
  bool has_begun_ = false;  ///< the daemons of all first hosts have come
  bool has_moved_ = false;
  PmixHub hub_;
  MeetingHub meetings_;
};

}  // namespace hvd::launcher

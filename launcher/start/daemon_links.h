/// @file daemon_links.h — hvdrun's conversation with the host daemons: who is there, what each host's PMIx server is
/// told, the ranks' meetings (meeting_hub.h), and PMIx's words between hosts (pmix_hub.h).
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "launcher/start/meeting_hub.h"
#include "launcher/start/pmix_hub.h"
#include "wire/channel/channel.h"
#include "wire/manifest/daemon_manifest.h"
#include "wire/messages/hello.h"

namespace hvd::launcher {

/// What the daemons report.  All are called from receive().
struct DaemonEvents {
  std::function<void(int rank, int status)> abort;           ///< that rank has called MPI_Abort
  std::function<void(int rank)> spawn;                       ///< that rank has called MPI_Comm_spawn, which was refused
  std::function<void(int host, std::string why)> no_server;  ///< no PMIx server there: its ranks run without MPI
  std::function<void(int rank, int status)> guard_ended;     ///< badly, and perhaps before it could come
  std::function<void(int rank)> waits{};                     ///< it has called init() without naming ranks
  std::function<void(std::uint64_t epoch, const std::vector<std::int32_t>& ranks)> met{};  ///< and these are a world
  /// It has called init(), and will join later.  @return the next world's ranks, this one among them
  std::function<std::vector<std::int32_t>(int rank)> expects{};
};

class DaemonLinks {
 public:
  DaemonLinks(wire::DaemonManifest manifest, DaemonEvents events);

  /// A daemon's hello.  Once all daemons have come they get their manifests, and start their ranks: no rank runs in a
  /// job that lacks a host.  False where there is no such host, or its daemon has come before.
  bool greet(wire::Listener& listener, const wire::PeerId& from, const wire::Hello& hello);
  bool all_have_come() const { return host_of_.size() == links_.size(); }
  /// The channel has taken all that was to be sent.
  bool is_quiet() const { return behind_.empty(); }
  /// All have come, and their connections have ended.
  bool all_are_gone() const { return num_gone_ == links_.size(); }
  /// False when @p from is no daemon's.
  bool receive(wire::Listener& listener, const wire::PeerId& from, const wire::Frame& frame);
  /// Sends what the channel did not take yet.
  void flush(wire::Listener& listener);
  /// The host whose daemon that is, and the rank's host; -1: no daemon, no such rank.
  int host_of(const wire::PeerId& peer) const;
  int host_of(int rank) const;
  /// The rank has ended, or will not come: whoever waits for it in a meeting is told, and where it has died, those in
  /// its world.  @p why  one line that names it
  void end_rank(wire::Listener& listener, int rank, const std::string& why, bool died);
  /// That connection has ended for good.  Other hosts that wait for this one are told.
  void lose(wire::Listener& listener, const wire::PeerId& peer);

  // Of an elastic job (meeting_hub.h):
  void hold_strangers() { meetings_.hold_strangers(); }
  void invite(wire::Listener& listener, std::vector<std::int32_t> ranks);
  void dismiss(wire::Listener& listener, int rank);
  /// A host more.  @return its number; its daemon is to be started
  int add_host(const std::string& name);
  /// A rank more: its number is the next one.  That host's daemon starts a guard for it.
  /// @param begins_with_daemon  by itself, as one of the ranks that the daemon is started with
  void start_rank(wire::Listener& listener, int host, bool begins_with_daemon);
  /// Where that host's daemon has not come yet: it will not, and is refused if it does.
  void give_up(int host);
  bool is_gone(int host) const { return links_[static_cast<std::size_t>(host)].gone; }
  bool has_come(int host) const { return !links_[static_cast<std::size_t>(host)].peer.empty(); }
  /// Nobody is to be started any more: daemons without guards end.
  void release(wire::Listener& listener);

 private:
  struct DaemonLink {
    wire::PeerId peer;  ///< empty: has not come
    bool gone = false, started = false;
    std::deque<std::shared_ptr<const wire::Frame>> queue{};  ///< one for many hosts lies in memory once
  };
  void lose(DaemonLink& link);
  void take_pmix(wire::Listener& listener, int host, const std::string& body);
  void take_meeting(wire::Listener& listener, int host, const wire::MeetingMessage& message);
  void tell_world(const MeetingHub::Answers& answers);
  void send(wire::Listener& listener, const PmixHub::Outgoing& messages);
  void send(wire::Listener& listener, const MeetingHub::Answers& answers);
  void flush(wire::Listener& listener, std::size_t host);

  wire::DaemonManifest manifest_;
  std::shared_ptr<const wire::Frame> manifest_frame_;  ///< of it, once it was needed
  const DaemonEvents events_;
  std::vector<int> host_of_rank_;
  const int first_hosts_;          ///< those that were there at the start
  std::vector<DaemonLink> links_;  ///< [hosts]
  std::unordered_map<wire::PeerId, int> host_of_;
  std::set<std::size_t> behind_;  ///< hosts with a queue
  std::size_t num_gone_ = 0;
  bool has_begun_ = false;  ///< all of the first have come
  PmixHub hub_;
  MeetingHub meetings_;
};

}  // namespace hvd::launcher

/// @file session.h — hvdrun's conversation with all guards: which have come, what each runs, how each rank ended.
///
/// The session knows nothing of processes, terminals or time limits: the supervisor decides, the session sends and
/// receives.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/control/host_clocks.h"
#include "launcher/control/payload_delivery.h"
#include "launcher/control/rank_states.h"
#include "launcher/events/job_event.h"
#include "launcher/start/daemon_links.h"
#include "wire/channel/channel.h"
#include "wire/manifest/manifest.h"
#include "wire/messages/hello.h"
#include "wire/messages/message.h"
#include "wire/messages/stop_request.h"

namespace hvd::launcher {

/// session.cc has more than 300 lines on purpose: its short functions, one for each message, share the ranks' states.
class Session {
 public:
  /// @param manifests  [np]
  /// @param payload  adds the pickle's path to a rank's manifest, or sends the pickle to the rank's guard
  /// @param events     gets the guards' reports, in the order of the messages
  Session(std::unique_ptr<wire::Listener> listener, std::vector<wire::RankManifest> manifests, PayloadDelivery payload,
          EventSink events);

  /// Gives no rank its manifest before rank 0's guard has come.  @p manifests then makes the manifests of all ranks.
  /// Call it before the first pump(); not for an elastic job.
  void wait_for_rank_0(std::function<std::vector<wire::RankManifest>(const wire::Hello&)> manifests) {
    manifests_after_rank_0_ = std::move(manifests);
  }

  /// Lets host daemons connect too, on the guards' channel.  Call it before the first pump().
  void serve(wire::DaemonManifest manifest);
  /// Only a session that serves host daemons has them: call serve() before.
  DaemonLinks& daemons() { return *daemons_; }
  const DaemonLinks& daemons() const { return *daemons_; }

  int fd() const { return listener_->fd(); }
  std::vector<std::string> addresses() const { return listener_->addresses(); }
  const std::vector<RankState>& ranks() const { return ranks_.all(); }

  /// Sends queued frames, then receives until no frame waits or @p keep_receiving returns false.  keep_receiving()
  /// returns false while output cannot be written.  Throws Error{mismatch} when a guard speaks another protocol, and
  /// Error{usage} when a guard sends a malformed body.
  void pump(const std::function<bool()>& keep_receiving);
  /// True when the caller may sleep until fd() is readable: pump() has left no frame unread or unsent.
  bool is_quiet() const;
  /// One turn of the event loop: finds guards that are gone, and takes another sample of the clocks.
  void tick();

  /// Sends a message to the rank's guard, after all earlier ones.  False when there is no guard.
  bool tell(int rank, wire::Type type, std::string body = {});
  /// @p signal  as in wire::StopRequest
  void stop_all(const std::string& reason, double grace_seconds, int signal);
  void stop_rank(int rank, const std::string& reason, double grace_seconds);
  void signal_all(int number);
  /// Ends @p rank, which has called MPI_Abort or MPI_Comm_spawn.  The rank's death record then has the exit code @p
  /// status and @p text.
  void abort(int rank, int status, const std::string& text);
  /// Tells the rank to record the timeline from its next step on, or to stop.  Pings compare the clocks first.
  void record_timeline(int rank, bool on);
  /// For @p seconds from now, libhvd's stall limit ends no operation of any rank.
  void pause_limits(std::uint32_t seconds);
  /// Tells one guard of each other host that all ranks have connected.  The guard then closes the listening sockets of
  /// mpirun's daemon on its host (base/network/listen_filter.h).
  void tell_complete();
  /// Lets the guards exit.  On each other host a guard first looks for leftovers: the event HostSwept.
  void release_all();
  /// The number of hosts that have not answered release_all().
  int sweeps_open() const { return sweeps_open_; }
  /// Records that the rank's guard is gone without a message.  @p code  the signal, if known
  void vanish(int rank, const std::string& text, int code = 0);

  // For elastic jobs:
  /// From now on the guards of ended ranks may exit.  DaemonLinks::invite() names the members of each next world.
  void become_elastic();
  /// Adds a rank with the next number.  DaemonLinks::start_rank() explains the parameters.
  void start_rank(wire::RankManifest manifest, int host, bool begins_with_daemon);

  std::vector<int> in_stage(RankStage stage) const { return ranks_.in(stage); }
  std::size_t num_in_stage(RankStage stage) const { return ranks_.num_in(stage); }
  /// A job without host daemons returns true for both.
  bool daemons_have_come() const { return !daemons_ || daemons_->all_have_come(); }
  bool daemons_have_moved() const { return daemons_ && daemons_->any_has_moved(); }
  /// Ends the daemons of other hosts, which the starter's end may not reach.
  void stop_daemons() {
    if (daemons_) daemons_->stop();
  }
  /// Daemons have announced connections over further networks, which have not come yet.
  bool awaits_paths() const { return listener_->awaits_paths(); }
  bool daemons_are_gone() const { return !daemons_ || daemons_->all_are_gone(); }
  /// True when every rank has ended, and each guard has nothing left below it or is gone.
  bool all_clean() const { return num_in_stage(RankStage::clean) == ranks_.size(); }

 private:
  void receive(const wire::PeerId& from, const wire::Frame& frame);
  void greet(const wire::PeerId& from, const wire::Frame& frame);
  void give_manifest(int rank);
  void rank_0_has_come(const wire::Hello& hello);
  void take_event(int rank, wire::Type type, const std::string& body);
  void take_pong(int rank, std::string_view body);
  void clean(int rank);
  void payload_is_ready(int leader, const std::string& path);
  void died(int rank, wire::DeathRecord record);
  void send(int rank, wire::Type type, std::string body);
  void flush(int rank);
  /// False when more is to be sent.
  bool send_what_waits(int rank);
  void ping(int rank);
  void ping_hosts();
  void lose_guard(int rank, bool with_host);
  std::string lost_text(int rank) const;
  std::int64_t last_word_of_host(int rank) const;
  void release(int rank);
  void emit(const JobEvent& event) const {
    if (events_) events_(event);
  }
  const wire::RankManifest& manifest(int rank) const { return manifests_[static_cast<std::size_t>(rank)]; }

  std::unique_ptr<wire::Listener> listener_;
  std::unique_ptr<DaemonLinks> daemons_;  ///< null: mpirun starts the guards
  std::vector<wire::RankManifest> manifests_;
  std::function<std::vector<wire::RankManifest>(const wire::Hello&)> manifests_after_rank_0_;
  PayloadDelivery payload_;
  const EventSink events_;
  RankStates ranks_;
  std::set<int> behind_;  ///< ranks with a queue or a payload under way
  HostClocks clocks_;
  std::optional<wire::StopRequest> stopping_;
  bool released_ = false, elastic_ = false;
  std::set<std::string> swept_;  ///< other hosts where release_all() asked a guard to remove leftovers
  int sweeps_open_ = 0;
  bool left_unread_ = false;  ///< keep_receiving ended the last pump(), so frames may wait
};

}  // namespace hvd::launcher

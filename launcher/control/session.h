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
#include <vector>

#include "launcher/control/host_clocks.h"
#include "launcher/control/payload_delivery.h"
#include "launcher/control/rank_states.h"
#include "launcher/events/job_event.h"
#include "launcher/start/daemon_links.h"
#include "wire/channel/channel.h"
#include "wire/manifest/manifest.h"
#include "wire/messages/message.h"
#include "wire/messages/stop_request.h"

namespace hvd::launcher {

/// The class has more than 300 lines on purpose: it has one short function for each message, and they share the ranks'
/// states.
class Session {
 public:
  /// @param manifests  [np]; those with payload.kind pickle get their path or the bytes from @p payload
  /// @param events     gets what guards report, in the order of the messages
  Session(std::unique_ptr<wire::Listener> listener, std::vector<wire::RankManifest> manifests, PayloadDelivery payload,
          EventSink events);

  /// Host daemons connect to the same channel.  Call it before the first pump().
  void serve(wire::DaemonManifest manifest);
  /// After serve().
  DaemonLinks& daemons() { return *daemons_; }
  const DaemonLinks& daemons() const { return *daemons_; }

  int fd() const { return listener_->fd(); }
  std::vector<std::string> addresses() const { return listener_->addresses(); }
  const std::vector<RankState>& ranks() const { return ranks_.all(); }

  /// Sends what waits.  Then receives until nothing waits, or until @p keep_receiving returns false: output has nowhere
  /// to go.  Throws Error{mismatch} when a guard speaks another protocol.
  void pump(const std::function<bool()>& keep_receiving);
  /// True when no frame waits that fd() does not announce.
  bool is_quiet() const;
  /// One turn of the event loop: finds guards that are gone, and takes another sample of the clocks.
  void tick();

  /// Sends a message to the rank's guard, after all earlier ones.  False when there is no guard.
  bool tell(int rank, wire::Type type, std::string body = {});
  /// @p signal  as in wire::StopRequest
  void stop_all(const std::string& reason, double grace_seconds, int signal);
  void stop_rank(int rank, const std::string& reason, double grace_seconds);
  void signal_all(int number);
  /// Ends @p rank, which has asked for the end of the job as MPI_Abort does.  Its death record then has the exit code
  /// @p status and @p text.
  void abort(int rank, int status, const std::string& text);
  /// From its next step on the rank records for the timeline, or does not.  Clocks are compared first.
  void record_timeline(int rank, bool on);
  /// All ranks have come: one guard of each other host closes its daemon's listening sockets
  /// (base/network/listen_filter.h).
  void tell_complete();
  /// Lets the guards exit.  On each other host a guard first looks for leftovers: the event HostSwept.
  void release_all();
  /// How many hosts have not answered release_all() yet.
  int sweeps_open() const { return sweeps_open_; }
  /// Records that the rank's guard is gone without a message.  @p code  the signal, if known
  void vanish(int rank, const std::string& text, int code = 0);

  // Of an elastic job:
  /// From now on the guard of a rank that has ended may exit, and invite() names the next world.
  void become_elastic();
  /// Adds a rank with the next number.  See DaemonLinks.
  void start_rank(wire::RankManifest manifest, int host, bool begins_with_daemon);

  std::vector<int> in_stage(RankStage stage) const { return ranks_.in(stage); }
  std::size_t num_in_stage(RankStage stage) const { return ranks_.num_in(stage); }
  /// True also for a job without host daemons.
  bool daemons_have_come() const { return !daemons_ || daemons_->all_have_come(); }
  bool daemons_are_gone() const { return !daemons_ || daemons_->all_are_gone(); }
  /// True when every rank has ended, and each guard has nothing left below it or is gone.
  bool all_clean() const { return num_in_stage(RankStage::clean) == ranks_.size(); }

 private:
  void receive(const wire::PeerId& from, const wire::Frame& frame);
  void greet(const wire::PeerId& from, const wire::Frame& frame);
  void give_manifest(int rank);
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
  std::int64_t last_word_of_host(int rank) const;
  void release(int rank);
  void emit(const JobEvent& event) const {
    if (events_) events_(event);
  }
  const wire::RankManifest& manifest(int rank) const { return manifests_[static_cast<std::size_t>(rank)]; }

  std::unique_ptr<wire::Listener> listener_;
  std::unique_ptr<DaemonLinks> daemons_;  ///< null: mpirun starts the guards
  std::vector<wire::RankManifest> manifests_;
  PayloadDelivery payload_;
  const EventSink events_;
  RankStates ranks_;
  std::set<int> behind_;  ///< ranks with a queue or a payload under way
  HostClocks clocks_;
  std::optional<wire::StopRequest> stopping_;
  bool released_ = false, elastic_ = false;
  std::set<std::string> swept_;  ///< other hosts that a guard was asked to look over
  int sweeps_open_ = 0;
  bool left_unread_ = false;  ///< the last pump() was told to stop
};

}  // namespace hvd::launcher

/// @file session.h — hvdrun's conversation with all guards: which have come, what each runs, how each rank ended.
///
/// The session knows nothing of processes, terminals or time-outs: the supervisor decides, the session sends and
/// receives.
#pragma once
#include <array>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "launcher/control/clock.h"
#include "launcher/start/daemon_links.h"
#include "wire/channel/channel.h"
#include "wire/manifest/manifest.h"
#include "wire/messages/cleanup_result.h"
#include "wire/messages/death.h"
#include "wire/messages/hello.h"
#include "wire/messages/message.h"
#include "wire/messages/stack_picture.h"
#include "wire/messages/start_report.h"
#include "wire/messages/status_report.h"
#include "wire/messages/stop_request.h"
#include "wire/shared/collective_record.h"
#include "wire/shared/operation_record.h"
#include "wire/shared/stalls.h"
#include "wire/shared/step_record.h"

namespace hvd::launcher {

/// What the session reports, in the order of the messages.  Empty functions are not called.
struct SessionEvents {
  std::function<void(const wire::Hello&)> hello;
  std::function<void(int rank, const wire::StartReport&)> started;
  std::function<void(int rank, int stream, std::string_view bytes)> output;  ///< stream 1 or 2
  std::function<void(const wire::DeathRecord&)> death;                       ///< time_ns is in our clock
  std::function<void(int rank, std::string_view body)> trace;
  std::function<void(int rank, std::string_view piece)> result;
  std::function<void(int rank, std::int64_t sent_ns, std::int64_t received_ns, std::int64_t their_ns)> clock;
  std::function<void(int rank, std::vector<wire::Stall>)> stall;
  std::function<void(int rank, const wire::CollectiveWait&)> collective_wait;
  std::function<void(int rank, const wire::StatusReport&)> standing;
  std::function<void(int rank, const wire::StackPicture&)> stack;
  std::function<void(int rank, const std::vector<wire::StepRecord>&)> steps;
  std::function<void(int rank)> want_report;  ///< its program asks for the job's live report
  std::function<void(int rank, wire::RankOperations)> operations;
  std::function<void(const std::string& host, const wire::CleanupResult&)> swept;
  std::function<void(int rank, std::uint64_t bytes)> taken;
  std::function<void(int rank, bool paused)> paused;
  std::function<void(int rank, std::string_view body)> console;  ///< wire::Type::console
  std::function<void(const std::string& line)> note;             ///< something unusual, for --verbose
};

/// How far a rank has come.
enum class RankStage { absent, greeted, running, ended, clean };

/// One rank as the session knows it.
struct RankState {
  RankStage stage = RankStage::absent;
  wire::PeerId peer;
  bool local = false;
  bool gone = false;          ///< its guard's connection has ended
  bool told_to_stop = false;  ///< it alone
  std::int64_t heard_ns = 0;  ///< its guard's last word, by our clock
  std::int64_t cut_ns = 0;    ///< the last word from its host, where the connection to that was lost; 0: it was not
  std::int64_t rank_pid = 0;
  std::string phase;
  std::optional<wire::DeathRecord> death;
  struct AbortCall {
    int status = 0;
    std::string text;
    std::int64_t time_ns = 0;
  };
  std::optional<AbortCall> aborted;
  std::deque<wire::Frame> queue;                  ///< what the channel did not take yet
  std::optional<std::size_t> payload_sent_bytes;  ///< delivery under way
};

class Session {
 public:
  /// @param manifests  [np]; those with payload.kind pickle get their path or the bytes from @p payload
  /// @param local_payload_path  where this machine's ranks can read the payload
  Session(std::unique_ptr<wire::Listener> listener, std::vector<wire::RankManifest> manifests, std::string payload,
          std::string local_payload_path, SessionEvents events);

  /// Host daemons come over the same channel, and are @p links'.  Call it before the first pump().
  void serve(std::unique_ptr<DaemonLinks> links) { daemons_ = std::move(links); }

  int fd() const { return listener_->fd(); }
  std::vector<std::string> addresses() const { return listener_->addresses(); }
  const std::vector<RankState>& ranks() const { return ranks_; }

  /// Sends what waits; receives until nothing waits or @p keep_receiving returns false (output has nowhere to go).
  /// Throws Error{mismatch} when a guard speaks another protocol.
  void pump(const std::function<bool()>& keep_receiving);
  /// What fd() does not announce: frames that the channel or the caller did not take yet.
  bool is_quiet() const;
  /// One turn of the event loop: finds guards that are gone, and takes another sample of the clocks.
  void tick();

  /// @p signal  as in wire::StopRequest
  void stop_all(const std::string& reason, double grace_seconds, int signal);
  void signal_all(int number);
  /// @p rank has asked for the end of the job, as MPI_Abort does.  It is ended; its death record then has the exit code
  /// @p status, and @p text.
  void abort(int rank, int status, const std::string& text);
  /// From its next step on the rank records for the timeline, or does not.  Clocks are compared first.
  void record_timeline(int rank, bool on);
  /// A piece of the rank's standard input; an empty piece ends it.
  void feed(int rank, std::string piece) { send(rank, wire::Type::input, std::move(piece)); }
  /// Once all ranks have come: one guard of each other host closes its daemon's listening sockets
  /// (base/network/listen_filter.h).
  void tell_complete();
  /// Asks where a rank is; the answer is the event `stack`.  False when the rank's guard is gone.
  bool ask_stack(int rank, bool native);
  /// @p body  of wire::Type::console_input; the answers are the event `console`.  False likewise.
  bool send_to_console(int rank, std::string body);
  /// The job's live report, to a rank that wants it.
  void send_report(int rank, const std::string& json);
  /// Asks for a rank's last operations, at most @p most; the answer is the event `operations`.  False likewise.
  bool ask_operations(int rank, std::uint32_t most);
  /// Lets the guards exit.  On each host but this one a guard first looks over its host: the event `swept`.
  void release_all();
  /// How many hosts have not answered release_all() yet.
  int sweeps_open() const { return sweeps_open_; }
  /// Records that the rank's guard is gone without a message.  @p code  the signal, if known
  void vanish(int rank, const std::string& text, int code = 0);

  // Of an elastic job:
  /// From now on a rank that has ended lets its guard exit, and a world is what invite() says.
  void become_elastic();
  /// See DaemonLinks.
  int add_host(const std::string& name) { return daemons_->add_host(name); }
  void give_up_host(int host) { daemons_->give_up(host); }
  bool is_gone(int host) const { return daemons_->is_gone(host); }
  bool has_come(int host) const { return daemons_->has_come(host); }
  /// One rank more, with the next number.  See DaemonLinks.
  void start_rank(wire::RankManifest manifest, int host, bool begins_with_daemon);
  /// The members of the next world, by rank; none: nobody meets for now.
  void invite(std::vector<std::int32_t> ranks) { daemons_->invite(*listener_, std::move(ranks)); }
  /// Meetings refuse the rank, which then ends.
  void dismiss(int rank) { daemons_->dismiss(*listener_, rank); }
  /// @p change  as in wire::Type::host_change
  void tell_host_change(int rank, char change) { send(rank, wire::Type::host_change, {change}); }
  void stop_rank(int rank, const std::string& reason, double grace_seconds);

  std::vector<int> in_stage(RankStage stage) const;
  std::size_t num_in_stage(RankStage stage) const { return num_in_stage_[static_cast<std::size_t>(stage)]; }
  /// True also where there are none to come.
  bool daemons_have_come() const { return !daemons_ || daemons_->all_have_come(); }
  bool daemons_are_gone() const { return !daemons_ || daemons_->all_are_gone(); }
  /// True when every rank has ended, and each guard has nothing left below it or is gone.
  bool all_clean() const { return num_in_stage(RankStage::clean) == ranks_.size(); }

 private:
  void enter(RankState& state, RankStage stage);
  void receive(const wire::PeerId& from, const wire::Frame& frame);
  void greet(const wire::PeerId& from, const wire::Frame& frame);
  void give_manifest(int rank);
  void payload_is_ready(int leader, const std::string& path);
  void died(int rank, wire::DeathRecord record);
  void send(int rank, wire::Type type, std::string body);
  void flush(int rank);
  /// False when more is to be sent.
  bool send_what_waits(int rank);
  /// False while as many hosts as may be are getting the payload.
  bool may_deliver(int rank);
  void ping(int rank);
  void ping_hosts(std::int64_t now);
  void lose_guard(int rank, bool with_host);
  std::int64_t last_word_of_host(int rank) const;
  /// Of its host, whose processes have one.
  ClockEstimate& clock_of(int rank) { return clocks_[manifest(rank).host]; }
  void release(int rank);
  /// Whether its guard is there to be told something.
  bool has_guard(int rank) const;
  RankState& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const wire::RankManifest& manifest(int rank) const { return manifests_[static_cast<std::size_t>(rank)]; }

  std::unique_ptr<wire::Listener> listener_;
  std::unique_ptr<DaemonLinks> daemons_;  ///< null: mpirun starts the guards
  std::vector<wire::RankManifest> manifests_;
  std::string payload_, local_payload_path_;
  SessionEvents events_;
  std::vector<RankState> ranks_;
  std::array<std::size_t, 5> num_in_stage_{};
  std::unordered_map<wire::PeerId, int> rank_of_;
  std::set<int> behind_;                                   ///< ranks with a queue or a payload under way
  std::unordered_map<std::string, ClockEstimate> clocks_;  ///< of remote hosts
  std::vector<int> deliveries_;                            ///< leaders that are getting the payload
  std::map<std::string, std::string> host_payload_;        ///< remote host → path there
  std::optional<wire::StopRequest> stopping_;
  bool released_ = false, elastic_ = false;
  int first_late_ = std::numeric_limits<int>::max();  ///< rank that was started when others ran
  std::set<std::string> swept_;                       ///< remote hosts of which a guard was asked to look
  int sweeps_open_ = 0;
  std::int64_t next_ping_ns_ = 0;
  bool records_timeline_ = false;
  bool left_unread_ = false;  ///< the last pump() was told to stop
};

/// CLOCK_MONOTONIC.
std::int64_t monotonic_ns();

}  // namespace hvd::launcher

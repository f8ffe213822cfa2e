/// @file guard_life.h — the life of a guard: its states, its time limits, and the orders that follow from events.
///
///   connecting → waiting (manifest, payload) → running → ending → reported → done
///
/// Pure: no clock and no I/O.  The guard reports each event with its time and carries out the order that is returned.
/// Every state ends even if no other process answers.
#pragma once
#include <chrono>
#include <optional>

namespace hvd::rank {

class GuardLife {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using milliseconds = std::chrono::milliseconds;

  static constexpr auto never = Time::max();
  static constexpr auto longest_loss = milliseconds(1500);        ///< of the connection to hvdrun
  static constexpr auto grace_when_lost = milliseconds(400);      ///< hvdrun or mpirun is gone: all must end within 3 s
  static constexpr auto descendants_limit = milliseconds(2000);   ///< for killed descendants to disappear
  static constexpr auto last_message_limit = milliseconds(1000);  ///< time for an orphan's death record to leave
  static constexpr auto orphan_linger = milliseconds(300);        ///< time for hvdrun to answer an orphan's record
  static constexpr auto tick = milliseconds(500);                 ///< between looks at shared memory: it sends no event
  static constexpr auto steps_every = milliseconds(1000);         ///< between two reports of a rank's steps
  static constexpr auto longest_sleep = milliseconds(30'000);     ///< bounds the harm of a lost wake-up

  enum class State { connecting, waiting, running, ending, reported, done };

  explicit GuardLife(Time born) : born_(born) {}

  State state() const { return state_; }
  bool is_done() const { return state_ == State::done; }
  /// The end of the rank was asked for.
  bool is_stopped() const { return stopped_; }
  /// The guard's parent has died: the watchdog, mpirun or the host daemon.
  bool is_alone() const { return alone_; }
  /// hvdrun has released the guard: others look after this host.
  bool is_released() const { return released_; }
  bool has_failed_to_connect() const { return unreached_; }
  /// The time of the death record.
  Time reported_at() const { return reported_at_; }

  // ---- connecting ----
  void connected() { state_ = State::waiting; }
  enum class Contact {
    keep_trying,
    give_up,       ///< no address has answered in time
    give_up_still  ///< without an error message: the guard was stopped or its parent died
  };
  /// No address has let the guard in.  Giving up ends the life.
  Contact not_connected(Time now);

  // ---- the rank ----
  void rank_started() { state_ = State::running; }
  enum class StopOrder {
    nothing,
    report_unstarted,  ///< the rank will not start: report() follows
    signal_rank        ///< send the signal, and wake a rank that is stopped
  };
  /// The rank is to end, killed after @p grace.  A second call can only shorten the time left.
  StopOrder stop(Time now, milliseconds grace);
  StopOrder parent_died(Time now) { return alone_ = true, stop(now, grace_when_lost); }
  /// True once, when the grace is over: the rank and its descendants are to be killed.
  bool kill_is_due(Time now);
  void rank_ended(Time now);

  /// The parts of the rank that are left in the state `ending`.
  struct Remains {
    bool descendants = false;  ///< of the rank, alive
    bool streams = false;      ///< open: output or link
    bool outbox_is_full = false;
  };
  enum class EndOrder { wait, kill_descendants, report };
  /// First the descendants end, then the streams, then the record is written.  A full outbox delays the record without
  /// limit, because no output may be lost.
  EndOrder next_of_end(Time now, const Remains& remains) const;

  /// The death record was written.
  void report(Time now);

  // ---- hvdrun ----
  /// @p lost_for  the time since the connection to hvdrun was lost; nothing: it is not lost
  static bool is_gone(std::optional<milliseconds> lost_for) { return lost_for && *lost_for > longest_loss; }
  /// Call it in each round of the loop while connected.  If the guard has reported, the call may end the life.
  /// @return the order after the loss of hvdrun or of the parent
  StopOrder watch(Time now, bool hvdrun_is_gone, bool outbox_is_empty);
  /// True when hvdrun is gone and the guard has reported.  The host's last guard then ends mpirun's daemon.
  bool must_end_daemon(bool hvdrun_is_gone) const { return state_ == State::reported && hvdrun_is_gone && !alone_; }
  void release() { released_ = true, state_ = State::done; }
  void finish() { state_ = State::done; }

  // ---- time ----
  bool look_is_due(Time now);
  bool steps_are_due(Time now);
  struct Awaited {
    bool is_announced = false;   ///< a descriptor reports every event: hvdrun is connected, libhvd is not loaded
    bool takes_picture = false;  ///< of the rank's stack
    bool outbox_is_empty = true;
    Time next = never;  ///< the earliest deadline of the guard's parts
  };
  /// Returns the time for which the guard may sleep.
  milliseconds patience(Time now, const Awaited& awaited) const;

 private:
  const Time born_;
  State state_ = State::connecting;
  bool stopped_ = false, alone_ = false, released_ = false, unreached_ = false;
  Time kill_at_ = never, clean_until_ = never, reported_at_{}, look_at_{}, steps_at_{};
};

}  // namespace hvd::rank

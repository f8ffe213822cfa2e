/// @file step_recorder.h — records how this rank spends the time of each training step; its guard reads the records
/// (wire/shared/step_record.h).
///
/// The recorder divides the time of the training thread into parts.  These are its own work, input, waiting for
/// operations, the garbage collector, saving a checkpoint, and compiling.  If a part begins within another part, the
/// outer part pauses.  The time of waiting is divided again.  While data moves, it counts as transfer; else the rank
/// waits for other ranks.  During transfer, time without a core of the training thread or the engine's thread counts as
/// the rank's own time.  A rank that waits for others needs no core.
///
/// The training thread is the last thread that called the constructor, begin_epoch(), follow() with a listener, or
/// step_ended().
#pragma once
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "recorder/steps/thread_delays.h"
#include "recorder/steps/throttled_time.h"
#include "recorder/steps/ticks.h"
#include "wire/shared/recorder_memory.h"

namespace hvd::recorder {

enum class StepPart : std::uint8_t { work, input, waiting, collect, save, compile };

/// Learns of the end of each step, and of the start and end of each part.  The recorder calls it under its lock, so one
/// call at a time.
class StepListener {
 public:
  virtual ~StepListener() = default;
  virtual void step_ended(std::int64_t number) = 0;
  virtual void part(StepPart part, bool begins) = 0;
};

/// Resources that the process has used since its start.
struct ProcessUse {
  std::int64_t cpu_ns = 0, read_bytes = 0, written_bytes = 0, major_faults = 0;
};

/// A rank has one recorder.  Thread-safe, except where a function says otherwise.  Without a guard's memory and without
/// a listener, a call costs one comparison.
/// Size: one counter for each fact of a record.  All are read and reset at a step's end.
class StepRecorder {
 public:
  /// @param fd  HVD_RECORDER_FD, or -1: there is no guard
  explicit StepRecorder(int fd);
  ~StepRecorder();
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;

  /// The memory that the guard reads; nullptr: there is no guard.
  wire::RecorderMemory* memory() const { return memory_; }

  /// @param listener  must stay valid until the next follow() or the recorder's end; nullptr: none
  void follow(StepListener* listener);

  /// A new world begins: steps count from 1 again.
  /// @param epoch  number of the world
  void begin_epoch(std::int64_t epoch);

  /// A part begins or ends.  Calls on other threads than the training thread have no effect.
  /// @param loader  for StepPart::input: the data loader
  void begin(StepPart part, wire::Loader loader = wire::Loader::none) {
    if (used()) begin_slowly(part, loader);
  }
  void end(StepPart part) {
    if (used()) end_slowly(part);
  }
  /// The program has ended a step.  From now on, until the next epoch, round_ended() has no effect.
  void step_ended();
  /// The operations of a round begin to repeat, for the @p number th time.  A round counts as a step, unless the
  /// program calls step_ended().
  void round_ended(std::int64_t number);

  /// Counts submitted operations, and the bytes of their tensors.
  void submitted(std::size_t operations, std::int64_t bytes) {
    if (!memory_) return;
    operations_.fetch_add(static_cast<std::int64_t>(operations), std::memory_order_relaxed);
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }

  /// A process set begins (@p now is true) or ceases to move data, at the time @p ns.  One thread at a time.
  void moves(bool now, std::int64_t ns) {
    if (!memory_) return;
    if (now ? moving_sets_++ != 0 : --moving_sets_ != 0) return;
    moved_.store(moved_.load(std::memory_order_relaxed) + (now ? -ns : ns), std::memory_order_relaxed);
  }

  /// The GPU has waited @p ns for results of operations that concern all ranks.
  void device_waited(std::int64_t ns) {
    if (memory_ && ns > 0) device_wait_ns_.fetch_add(ns, std::memory_order_relaxed);
  }

  /// The job's live report, as JSON; empty: no report has arrived.  The first call asks hvdrun for reports.
  std::string live_report();

  /// asked(): the program asks for a notice of an operation's end.  told(): the program got the notice.  Time counts as
  /// waiting from the last asked() until told() has answered all requests.  Only time that would count as the training
  /// thread's own work becomes waiting.
  void asked();
  void told();

  /// The engine's thread calls this first.
  void engine_runs();

  /// The traffic to a peer since init (transport::LinkUse).
  struct LinkCounts {
    int peer = -1;
    std::int64_t bytes = 0, busy_ns = 0, round_trip_ns = 0;
  };
  /// Call it a few times a second.  One thread at a time.
  void links(const std::vector<LinkCounts>& so_far);

  /// fetch_begins(): a thread asks for a batch, for which the training thread waits.  fetch_ended(): the batch is here.
  void fetch_begins(wire::Loader loader);
  void fetch_ended();
  /// See hvd_batches_made().
  void batches_made(std::int64_t ns);

 private:
  /// For each thread: the time for which it was ready to run without a core, and the time it ran.
  struct RunDelay {
    std::int64_t training_ns = 0, engine_ns = 0;
    std::int64_t training_ran_ns = 0, engine_ran_ns = 0;
    std::int64_t sum() const { return training_ns + engine_ns; }
    /// @param one_core  the threads share a core: a thread does not lack it while the other one runs
    RunDelay since(RunDelay before, bool one_core) const;
  };
  struct Waiting {
    std::int64_t waited_ns = 0, moved_ns = 0;
    std::int64_t delayed_ns = 0;   ///< all had submitted, and a thread had no core
    std::int64_t training_ns = 0;  ///< the training thread had no core
    void add(std::int64_t time, std::int64_t moved, RunDelay lost);
  };
  static constexpr std::size_t most_parts = 6, deepest = 8;

  bool used() const { return memory_ || listener_.load(std::memory_order_relaxed); }
  bool trains_here() const;
  void adopt_thread();
  void begin_slowly(StepPart part, wire::Loader loader);
  void end_slowly(StepPart part);
  struct TwoCounts {
    LinkCounts now, told;  ///< told: the counts in the last record with this link
  };
  void tell_link(wire::StepRecord& r);
  void restart(std::int64_t now);
  void count_until(std::int64_t now);
  void count_asked_until(std::int64_t now);
  void forget_rounds();
  void end_step(std::int64_t number);
  void write(std::int64_t now);
  ProcessUse use() const;
  RunDelay delay_so_far() const;
  RunDelay recent_delay(std::int64_t now);
  void look_at_cores(wire::StepRecord& r);
  void look_at_sleep(std::int64_t now, wire::StepRecord& r);
  void look_at_group(std::int64_t now, wire::StepRecord& r);
  /// The total time, up to @p now, during which data has moved.
  std::int64_t moved_until(std::int64_t now) const {
    const std::int64_t moved = moved_.load(std::memory_order_relaxed);
    return moved < 0 ? moved + now : moved;
  }

  wire::RecorderMemory* memory_ = nullptr;
  std::atomic<StepListener*> listener_{nullptr};
  std::atomic<const void*> trainer_{nullptr};  ///< an address that only the training thread has
  std::atomic<std::int64_t> operations_{0}, bytes_{0}, device_wait_ns_{0};
  int moving_sets_ = 0;
  /// The total time in ns during which data has moved.  While data moves, the time at which this began is subtracted,
  /// so the value is negative.
  std::atomic<std::int64_t> moved_{0};

  std::mutex mutex_;                            ///< protects all members below
  int schedstat_ = -1, engine_schedstat_ = -1;  ///< descriptors of the threads' files
  RunDelay delayed_;                            ///< at the start of this record
  /// The threads lacked a core in the last record.  Only then waits read the files, which costs a microsecond.
  bool cores_are_short_ = false;
  bool one_core_ = false;           ///< the process may use one core only
  RunDelay read_delay_;             ///< the last reading
  std::int64_t read_delay_ns_ = 0;  ///< the time of the last reading during a record
  ThreadDelays thread_delays_;
  bool told_of_steps_ = false;  ///< the program has called step_ended() in this epoch
  std::int64_t epoch_ = 0, number_ = 0, written_number_ = 0;
  std::int64_t steps_a_record_ = 1;                  ///< steps of a record: a power of two
  int short_records_ = 0;                            ///< short records in a row
  std::int64_t began_ns_ = 0;                        ///< start of the current record
  std::int64_t step_began_ns_ = 0, longest_ns_ = 0;  ///< of the current step; the record's longest step
  std::array<StepPart, deepest> within_{};           ///< open parts, the innermost last
  std::size_t depth_ = 0;
  std::int64_t counted_ns_ = 0, counted_moved_ = 0;  ///< end of the counted time; moved_until() then
  RunDelay counted_delay_, asked_delay_;             ///< at that time; at the last asked()
  std::array<std::int64_t, most_parts> sums_{};
  int asked_ = 0;                                ///< open requests: asked() without told()
  std::int64_t asked_ns_ = 0, asked_moved_ = 0;  ///< time, and time of moving data, at the last asked()
  std::int64_t fetch_ns_ = 0;                    ///< time of the last fetch_begins(); 0: no fetch is open
  std::int64_t fetched_ns_ = 0;                  ///< time between fetch_begins() and fetch_ended(), in this record
  std::int64_t made_ns_ = 0;                     ///< sum of batches_made(), in this record
  std::map<int, TwoCounts> links_;               ///< by peer
  int link_told_ = -1;                           ///< the peer of the last record that has a link
  wire::Loader loader_ = wire::Loader::none;     ///< of this record
  Waiting blocked_, told_;                       ///< blocked_: in StepPart::waiting; told_: between asked() and told()
  ProcessUse used_;                              ///< at the start of this record
  std::optional<ThrottledTime> throttled_;       ///< only with a guard
  std::int64_t throttled_ns_ = 0;                ///< throttled time at the last look_at_group()
  std::int64_t looked_ns_ = 0;                   ///< time of the last look_at_group(); 0: none
};

}  // namespace hvd::recorder

/// @file step_recorder.h — what this rank does in each step of its training, for its guard.
///
/// Its guard reads the records (wire/shared/step_record.h).
///
/// Time counts for what the thread that trains is in: its own work, input, waiting for operations, the garbage
/// collector, a checkpoint; when one begins within another, the outer one pauses.  While it waits, data moves or does
/// not, which tells waiting for other ranks from transfer.
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

#include "recorder/steps/throttled_time.h"
#include "recorder/steps/ticks.h"
#include "wire/shared/recorder_memory.h"

namespace hvd::recorder {

enum class StepPart : std::uint8_t { work, input, waiting, collect, save };

/// Gets each step when it ends.  The recorder calls it under its lock: one call at a time.
class StepListener {
 public:
  virtual ~StepListener() = default;
  virtual void step_ended(std::int64_t number) = 0;
  virtual void part(StepPart part, bool begins) = 0;
};

/// What the process has used so far.
struct ProcessUse {
  std::int64_t cpu_ns = 0, run_delay_ns = 0, read_bytes = 0, written_bytes = 0, major_faults = 0;
};

/// Of a whole rank.  Thread-safe.  Without a guard's memory and a listener every call is one comparison.
class StepRecorder {
 public:
  /// @p fd  HVD_RECORDER_FD, or -1.  The thread that calls it is the one that trains, until another ends a step.
  explicit StepRecorder(int fd);
  ~StepRecorder();
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;

  /// The guard's; nullptr: there is none.
  wire::RecorderMemory* memory() const { return memory_; }

  /// @p listener  nullptr: nobody.  It must outlive the recorder, or the next call
  void follow(StepListener* listener);

  /// Steps count from 1 again.  @p epoch  which world this is
  void begin_epoch(std::int64_t epoch);

  /// A part begins or ends; on other threads than the one that trains nothing happens.
  /// @p loader  where it is input: whose
  void begin(StepPart part, wire::Loader loader = wire::Loader::none) {
    if (used()) begin_slowly(part, loader);
  }
  void end(StepPart part) {
    if (used()) end_slowly(part);
  }
  /// The program tells that a step has ended: from now on nothing is guessed.
  void step_ended();
  /// The operations of a round begin to repeat, the @p number th time: a step, unless the program tells.
  void round_ended(std::int64_t number);

  void submitted(std::size_t operations, std::int64_t bytes) {
    if (!memory_) return;
    operations_.fetch_add(static_cast<std::int64_t>(operations), std::memory_order_relaxed);
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }

  /// A process set has begun, or ended, to move data, at @p ns.  One thread at a time.
  void moves(bool now, std::int64_t ns) {
    if (!memory_) return;
    if (now ? moving_sets_++ != 0 : --moving_sets_ != 0) return;
    moved_.store(moved_.load(std::memory_order_relaxed) + (now ? -ns : ns), std::memory_order_relaxed);
  }

  /// The job's live report: JSON; empty: none has come.  The first call asks for it.
  std::string live_report();

  /// Somebody wants to be told of the end of an operation; somebody was told.  From the last one asked for until the
  /// last one told of the rank waits, whatever its threads do.
  void asked();
  void told();

  /// Bytes sent to a peer so far, noted a few times a second (transport::LinkUse).  One thread at a time.
  struct LinkCounts {
    int peer = -1;
    std::int64_t bytes = 0, busy_ns = 0;
  };
  void links(const std::vector<LinkCounts>& so_far);

  /// Some thread asks for a batch for which the one that trains waits; it has it.
  void fetch_begins(wire::Loader loader);
  void fetch_ended();
  /// hvd_batches_made()
  void batches_made(std::int64_t ns);

 private:
  struct Waiting {
    std::int64_t waited_ns = 0, moved_ns = 0;
  };
  static constexpr std::size_t most_parts = 5, deepest = 8;

  bool used() const { return memory_ || listener_.load(std::memory_order_relaxed); }
  bool trains_here() const;
  void adopt_thread();
  void begin_slowly(StepPart part, wire::Loader loader);
  void end_slowly(StepPart part);
  struct TwoCounts {
    LinkCounts now, told;
  };
  void tell_link(wire::StepRecord& r);
  void restart(std::int64_t now);
  void count_until(std::int64_t now);
  void count_asked_until(std::int64_t now);
  void end_step(std::int64_t number);
  void write(std::int64_t now);
  ProcessUse use() const;
  void look_at_group(std::int64_t now, wire::StepRecord& r);
  /// The time for which data has moved.
  std::int64_t moved_until(std::int64_t now) const {
    const std::int64_t moved = moved_.load(std::memory_order_relaxed);
    return moved < 0 ? moved + now : moved;
  }

  wire::RecorderMemory* memory_ = nullptr;
  std::atomic<StepListener*> listener_{nullptr};
  std::atomic<const void*> trainer_{nullptr};  ///< of the thread that trains, an address of its own
  std::atomic<std::int64_t> operations_{0}, bytes_{0};
  int moving_sets_ = 0;
  std::atomic<std::int64_t> moved_{0};  ///< while data moves: less the time at which that began, hence negative

  std::mutex mutex_;    ///< of all below
  int schedstat_ = -1;  ///< of the thread that trains
  bool told_of_steps_ = false;
  std::int64_t epoch_ = 0, number_ = 0, written_number_ = 0;
  std::int64_t steps_a_record_ = 1;         ///< a power of two
  int short_records_ = 0;                   ///< in a row
  std::int64_t began_ns_ = 0;               ///< the record
  std::array<StepPart, deepest> within_{};  ///< parts that have begun, the innermost last
  std::size_t depth_ = 0;
  std::int64_t counted_ns_ = 0, counted_moved_ = 0;  ///< until when time was counted
  std::array<std::int64_t, most_parts> sums_{};
  int asked_ = 0;                                ///< and not told
  std::int64_t asked_ns_ = 0, asked_moved_ = 0;  ///< when the last one was
  std::int64_t fetch_ns_ = 0;                    ///< when a batch was asked for last; 0: it came
  std::int64_t fetched_ns_ = 0;                  ///< waited for batches
  std::int64_t made_ns_ = 0;                     ///< batches were made
  std::map<int, TwoCounts> links_;               ///< by peer
  int link_told_ = -1;                           ///< last: a peer
  wire::Loader loader_ = wire::Loader::none;     ///< of the record
  Waiting blocked_, told_;                       ///< of the thread that trains; between asked() and told()
  ProcessUse used_;                              ///< when the record began
  std::optional<ThrottledTime> throttled_;       ///< where somebody reads what is written
  std::int64_t throttled_ns_ = 0;                ///< when it was looked at last
  std::int64_t looked_ns_ = 0;
};

}  // namespace hvd::recorder

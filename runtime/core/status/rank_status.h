/// @file rank_status.h — this rank's steps, its waiting time and its present phase, for hvdrun.
///
/// The cost is a few comparisons for each batch and a coarse clock for each step.  A wait is timed once it is longer
/// than a spin.  The slowest rank waits least, since the others wait for it.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "memory/futex.h"
#include "recorder/steps/step_recorder.h"
#include "wire/shared/status_page.h"

namespace hvd::core {

/// Counts rounds in a sequence of batches.  A round is a step of the program, which has the same operations in each
/// step.  Pure.
///
/// One tensor, the marker, marks the rounds while batches contain it.  A second tensor, the rival, may replace the
/// marker.  After 1, 2, 4, … batches without the old rival, a new one is chosen.  Brent's algorithm finds the length of
/// a cycle in this way.  If the rival repeats and the marker does not, the rival becomes the marker.  So tensors that
/// occur once, and phases with other tensors, do no harm.
class RoundCounter {
 public:
  /// Call it for each tensor of a batch, then end().
  void take(std::uint32_t id) {
    marked_ |= id == marker_;
    rivalled_ |= id == rival_;
    any_ = id;
  }
  /// Ends a batch.  Returns the number of rounds that it has added, mostly 0 or 1.
  int end() {
    if (any_ == none) return 0;
    const bool marked = marked_, rivalled = rivalled_;
    marked_ = rivalled_ = false;
    const std::uint32_t id = any_;
    any_ = none;
    if (marked) {
      const int fresh = proven_ ? 1 : 2;  // the first round is recognised only now
      proven_ = true;
      rival_ = none;
      patience_ = 1;
      return fresh;
    }
    if (marker_ == none) marker_ = id;
    if (rivalled && ++rival_rounds_ >= (proven_ ? enough_proven : enough)) {
      marker_ = rival_;
      proven_ = true;
      rival_ = none;
      patience_ = 1;
      return rival_rounds_ + 1;
    }
    if (rivalled) {
      age_ = 0;
    } else if (rival_ == none || ++age_ >= patience_) {
      patience_ = rival_ == none || patience_ >= most_patience ? patience_ : 2 * patience_;
      rival_ = id;
      rival_rounds_ = age_ = 0;
    }
    return 0;
  }

 private:
  static constexpr std::uint32_t none = 0xFFFFFFFF;
  static constexpr int enough = 2, enough_proven = 64, most_patience = 1 << 20;

  std::uint32_t marker_ = none, rival_ = none, any_ = none;
  bool marked_ = false, rivalled_ = false, proven_ = false;
  int rival_rounds_ = 0, age_ = 0, patience_ = 1;
};

/// The durations of the last steps.  Pure.
class StepDurations {
 public:
  /// @p fresh: the number of steps that have ended since the last call.
  void add(std::int64_t now_ns, int fresh) {
    if (last_ns_ != 0) times_[count_++ % times_.size()] = (now_ns - last_ns_) / fresh;
    last_ns_ = now_ns;
  }
  /// The median, on which a single evaluation or checkpoint has no effect.  0 before the second step.
  std::int64_t median_ns() const {
    const std::size_t n = std::min(count_, times_.size());
    // Without std::sort: GCC 12 warns of its steps where it knows that there are nine.
    for (std::size_t i = 0; i < n; ++i) {
      std::size_t less = 0, same = 0;
      for (std::size_t k = 0; k < n; ++k) less += times_[k] < times_[i], same += times_[k] == times_[i];
      if (less <= n / 2 && n / 2 < less + same) return times_[i];
    }
    return 0;
  }

 private:
  std::array<std::int64_t, 9> times_{};
  std::size_t count_ = 0;
  std::int64_t last_ns_ = 0;
};

/// The status of a rank.  Any thread, except for steps() and median_step_ns(), which the drive side calls.
class RankStatus {
 public:
  RankStatus() = default;
  /// @p fd: HVD_STATUS_FD, the guard's page.  @p recorder_fd: HVD_RECORDER_FD, its memory for records.  -1 or another
  /// file: the counts stay in this process.
  explicit RankStatus(int fd, int recorder_fd = -1);
  /// True if a guard reads the page.
  bool has_reader() const { return page_ != &own_; }
  RankStatus(const RankStatus&) = delete;
  RankStatus& operator=(const RankStatus&) = delete;
  ~RankStatus();

  /// Records the training steps.  RankStatus passes its reports on to the recorder.
  recorder::StepRecorder& recorder() { return recorder_; }

  /// True if hvdrun has paused the limit for stalled operations: missing ranks do work that ends by itself.
  bool limit_is_paused(std::int64_t now_ns) const {
    const wire::RecorderMemory* memory = recorder_.memory();
    return memory && now_ns < memory->limit_paused_until.load(std::memory_order_relaxed);
  }

  /// Adds @p fresh rounds of a set, which now has @p all.  The rank's steps are those of its busiest set.
  void steps(int fresh, std::int64_t all) {
    if (before_ + all <= page_->steps.load(std::memory_order_relaxed)) return;
    recorder_.round_ended(all);
    const std::int64_t now = coarse_ns();
    durations_.add(now, fresh);
    page_->steps.store(before_ + all, std::memory_order_relaxed);
    if (page_->first_ns.load(std::memory_order_relaxed) == 0) {
      page_->first_ns.store(now, std::memory_order_relaxed);
    } else {
      page_->timed_steps.store(page_->timed_steps.load(std::memory_order_relaxed) + fresh, std::memory_order_relaxed);
      page_->last_ns.store(now, std::memory_order_relaxed);
    }
  }

  std::int64_t median_step_ns() const { return durations_.median_ns(); }

  /// Adds a wait of a caller, from @p since_ns to @p now_ns.  Time before the first timed step does not count, since
  /// the ranks do not start together.
  void waited(std::int64_t since_ns, std::int64_t now_ns) {
    const std::int64_t first = page_->first_ns.load(std::memory_order_relaxed);
    if (first == 0 || now_ns <= std::max(since_ns, first)) return;
    page_->waited_ns.fetch_add(now_ns - std::max(since_ns, first), std::memory_order_relaxed);
  }

  /// Notes that a caller requests a notice of an operation's end, and does not block. told() notes that the notice was
  /// given.  The rank counts as waiting from the last such request until the last such end.
  void asked() {
    recorder_.asked();
    asked_ns_.store(coarse_ns(), std::memory_order_relaxed);
    asked_.fetch_add(1, std::memory_order_relaxed);
  }
  /// Sets the phase in which this rank is.
  void place(wire::RankPhase where);
  /// Notes that no submitted operation has moved since @p since_ns.  @p name: the alphabetically first of these
  /// operations.  @p gpu_late, @p what: see wire::StatusPage.  One thread at a time.
  void waits(std::string_view name, std::int64_t since_ns, wire::GpuProgress gpu = wire::GpuProgress::none,
             std::string_view gpu_late = {}, std::string_view what = {});
  void goes_on() {
    if (page_->waits_ns.load(std::memory_order_relaxed) != 0) page_->waits_ns.store(0, std::memory_order_relaxed);
  }
  void told() {
    recorder_.told();
    if (asked_.fetch_sub(1, std::memory_order_relaxed) != 1) return;
    waited(asked_ns_.load(std::memory_order_relaxed), coarse_ns());
  }

 private:
  /// A clock that is exact to some milliseconds, at a tenth of the cost.
  static std::int64_t coarse_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return std::int64_t{t.tv_sec} * 1000000000 + t.tv_nsec;
  }

  wire::StatusPage own_;
  wire::StatusPage* page_ = &own_;
  std::int64_t before_ = 0;  ///< steps of an earlier init
  StepDurations durations_;
  recorder::StepRecorder recorder_{-1};
  std::atomic<int> asked_{0};
  std::atomic<std::int64_t> asked_ns_{0};
};

/// One wait of a caller.  The status page counts it from the moment at which it was longer than a spin.
class WaitTimer {
 public:
  explicit WaitTimer(RankStatus& status) : status_(status) { status_.recorder().begin(recorder::StepPart::waiting); }
  WaitTimer(const WaitTimer&) = delete;
  WaitTimer& operator=(const WaitTimer&) = delete;
  ~WaitTimer() {
    status_.recorder().end(recorder::StepPart::waiting);
    if (since_ns_) status_.waited(since_ns_, memory::now_ns());
  }
  void since(std::int64_t ns) {
    if (!since_ns_) since_ns_ = ns;
  }

 private:
  RankStatus& status_;
  std::int64_t since_ns_ = 0;
};

}  // namespace hvd::core

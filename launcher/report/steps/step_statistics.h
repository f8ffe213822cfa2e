/// @file step_statistics.h — sums over the steps of a job: where the time went, and which ranks kept others waiting.
/// Pure.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/report/steps/step_join.h"

namespace hvd::launcher {

/// The causes of a rank's delay that its step records show.
enum class Delay : std::uint8_t {
  input,       ///< its data loader
  saving,      ///< a checkpoint
  collecting,  ///< Python's garbage collector
  compiling,   ///< the rank compiled its program again
  no_core,     ///< the rank was ready to run and had no core
  asleep,      ///< the rank neither computed nor waited for a core: a disk, a network, a lock, a pause
  computing,   ///< the rank computed longer
};
inline constexpr std::size_t delay_kinds = 7;
using DelaySeconds = std::array<double, delay_kinds>;

/// A rank's own time in one stretch of the job: see StepStatistics::stretches().
struct StretchSum {
  std::int32_t steps = 0;
  float own_seconds = 0;
  float stopped_seconds = 0;  ///< delays of records in which the rank came more than half of a record later than others
};
inline constexpr std::size_t most_stretches = 16;

/// The distances between the long stops of one rank.
class StopCourse {
 public:
  /// @param at  a step near the stop, known to @p within steps
  void add(std::int64_t at, std::int64_t within);
  /// Adds the stops of @p later, whose first step has the number @p from.
  void add(const StopCourse& later, std::int64_t from);
  /// True if there are three stops or more, and the distances between them hardly differ.
  bool are_regular() const { return count_ >= 3 && most_ - least_ <= 2 * within_ + least_ / 5; }

 private:
  void add_distance(std::int64_t steps);

  std::int64_t count_ = 0, first_ = 0, last_ = 0, least_ = 0, most_ = 0, within_ = 1;
};

/// A histogram of a rank's delays: by length, the number of late steps and the sum of their delays.
class DelaySizes {
 public:
  /// @param seconds  the delay in each of @p steps
  void add(double seconds, std::int64_t steps);
  DelaySizes& operator+=(const DelaySizes& more);
  struct CountedSteps {
    double steps = 0, seconds = 0;
  };
  /// Returns the longest delays that make four fifths of the time, if at most half of the steps have them.  The other
  /// delays are then chance.  Otherwise returns all delays.
  CountedSteps main_part() const;

 private:
  static constexpr std::size_t most_sizes = 24;  ///< the first is 2 µs, each is twice as long as the one before
  std::array<std::int32_t, most_sizes> steps_{};
  std::array<float, most_sizes> seconds_{};
};

/// The core on which a rank ran in most of its steps.
class CoreVote {
 public:
  void add(int core, std::int64_t steps);
  CoreVote& operator+=(const CoreVote& more);
  /// The core, if it is the same in at least three of four of @p all steps; else -1.
  int core(std::int64_t all) const { return 2 * lead_ >= all ? core_ : -1; }

 private:
  int core_ = -1;
  std::int64_t lead_ = 0;  ///< steps on this core less steps on all others
};

/// Data sent over a link, in steps in which it was the busiest link of its rank.
struct LinkSum {
  double bytes = 0, busy = 0;
  double round_trip = 0;  ///< the largest of the minima that the records have; 0: not known
};

/// Seconds and counts of one rank, summed over its steps.
struct RankSums {
  std::int64_t steps = 0;
  double seconds = 0;
  double waited = 0;     ///< for other ranks
  double moved = 0;      ///< for data and messages under way
  DelaySeconds parts{};  ///< of its own time, which is seconds − waited − moved
  double cpu = 0;
  double throttled = 0;  ///< its cgroup's limit held its threads; the sum over threads
  double made = 0;       ///< time to make its batches, in other processes
  std::int64_t read_bytes = 0, written_bytes = 0, major_faults = 0;
  wire::Loader loader = wire::Loader::none;  ///< makes its batches
  CoreVote core;
  std::map<int, LinkSum> links;  ///< by peer; a few
  std::array<StretchSum, most_stretches> stretches{};
  StopCourse stops;
  // Steps in which this rank came last:
  std::int64_t late_steps = 0;  ///< steps in which the rank was late by more than a twentieth of the step
  double late = 0;              ///< sum of its delays: its own time minus the own time of the last but one rank
  DelaySizes late_sizes;        ///< of `late_steps`
  DelaySeconds late_by{};       ///< `late`, by the cause with the largest excess over the others' median
  std::array<std::int64_t, delay_kinds> late_steps_by{};  ///< `late_steps`, by the same cause

  /// Adds all members except the stretches and the stops.
  RankSums& operator+=(const RankSums& more);
  /// Keeps a few peers, the first ones.
  void add_link(int peer, const LinkSum& link);
};

/// Memory of a rank over the steps: some points, evenly spaced.
class MemoryCourse {
 public:
  void add(std::int64_t step, std::int64_t bytes);
  struct Growth {
    double bytes_per_step = 0;
    std::int64_t bytes = 0;  ///< from the middle of the course to its end
  };
  /// Nothing: memory does not grow all the time, or grows more slowly than before.
  std::optional<Growth> growth() const;

 private:
  static constexpr std::size_t most_points = 64;
  struct Point {
    std::int64_t step, bytes;
  };
  std::vector<Point> points_;
  std::int64_t stride_ = 1, next_ = 0;
};

/// One of some hundred points over the whole job, for plots.
struct StepPoint {
  std::int64_t number = 0;  ///< of the point's last step
  std::int64_t steps = 0;
  double seconds = 0;                       ///< sum of the steps' lengths
  double waited = 0, moved = 0, input = 0;  ///< likewise, the mean of the ranks
  double longest = 0;                       ///< the longest step
};

/// Memory is bounded by the number of ranks.
class StepStatistics {
 public:
  void add(const JoinedStep& step);

  std::int64_t steps() const { return steps_; }
  double seconds() const { return seconds_; }
  const std::map<int, RankSums>& ranks() const { return ranks_; }
  const std::map<int, MemoryCourse>& memory() const { return memory_; }
  const std::vector<StepPoint>& course() const { return course_; }
  /// The number of stretches into which the job so far is divided: at most 16, with about equally many steps.  All
  /// ranks have the same stretches.  Differences between stretches tell how reliable a mean is.
  std::size_t stretches() const { return stretch_records_.size(); }
  std::int64_t operations() const { return operations_; }
  std::int64_t operation_bytes() const { return operation_bytes_; }
  /// Adds @p other's ranks and steps; the course and the memory stay as they are.
  StepStatistics& operator+=(const StepStatistics& other);

 private:
  JoinedStep with_device_waits(JoinedStep step);
  void find_late(const JoinedStep& step, double step_seconds);
  void draw(const JoinedStep& step, double step_seconds);
  StretchSum& stretch_of(RankSums& sums) { return sums.stretches[stretch_records_.size() - 1]; }
  void begin_stretch();
  void halve_stretches();

  std::int64_t steps_ = 0, operations_ = 0, operation_bytes_ = 0;
  double seconds_ = 0;
  std::map<int, RankSums> ranks_;
  std::map<int, MemoryCourse> memory_;
  std::map<int, double> device_waits_;  ///< by rank: mean in ns per step, over some records
  std::vector<StepPoint> course_;
  std::int64_t steps_a_point_ = 1;
  std::vector<std::int32_t> stretch_records_;  ///< joined steps in each stretch
  std::int32_t records_a_stretch_ = 1;
};

/// Leaves out the first steps of a job, which load, compile and warm up.  Always leaves out the very first step.
/// Leaves out up to four more that take over twice as long as later ones.
class WarmUp {
 public:
  /// Returns the steps that count now.  The first nine calls return none.  The tenth call returns the steps that count
  /// among the first ten.  Each later call returns its step.
  std::vector<JoinedStep> pass(JoinedStep step);
  /// Call it at the end.  Returns the steps that are still held.
  std::vector<JoinedStep> rest();
  std::int64_t left_out() const { return left_out_; }

 private:
  static constexpr std::size_t looked_at = 10, most_left_out = 5;
  std::vector<JoinedStep> held_;
  bool over_ = false;
  std::int64_t left_out_ = 0;
};

}  // namespace hvd::launcher

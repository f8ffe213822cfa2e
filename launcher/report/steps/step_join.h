/// @file step_join.h — puts together what all ranks told of the same step.  Pure.
#pragma once
#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "wire/shared/step_record.h"

namespace hvd::launcher {

/// One step, or some that follow one another: of each rank that told of it, the sum.
struct JoinedStep {
  struct Part {
    int rank = 0;
    wire::StepRecord record;  ///< its lengths and counts are sums
  };
  std::int64_t epoch = 0;
  std::int64_t number = 0;  ///< of the last
  std::int64_t steps = 1;   ///< how many
  std::vector<Part> parts;  ///< by rank
};

/// Ranks tell of their steps in blocks, at times of their own, and may sum up several steps in one record.  A joined
/// step ends where a record of every rank ends.  Memory: bounded; a rank that tells nothing for long, while others
/// tell a lot, is left out until it tells again.
class StepJoin {
 public:
  /// So many ranks are expected to tell before the first step is put together.
  void expect(std::size_t ranks) { expected_ = ranks; }
  void add(int rank, const std::vector<wire::StepRecord>& records);
  /// The rank has ended, and told all it knew.
  void leave(int rank);
  /// The next step that is complete; nothing: none is.  @p now_seconds  of any steady clock
  std::optional<JoinedStep> next(double now_seconds);
  /// Nobody is going to tell more: the next of what is left, of the ranks that told of it.
  std::optional<JoinedStep> next_left();
  /// No record waits for those of other ranks.
  bool is_empty() const { return held_ == 0; }

  static constexpr double longest_wait_seconds = 10;     ///< for a rank that tells nothing
  static constexpr std::size_t most_records = 1u << 18;  ///< 32 MiB

 private:
  /// When a step ends: epochs come one after another.
  struct StepEnd {
    std::int64_t epoch = 0, number = 0;
    auto operator<=>(const StepEnd&) const = default;
  };
  struct ToldSteps {
    std::deque<wire::StepRecord> records;  ///< not put together yet
    bool left = false;                     ///< out, until it tells again
  };
  static StepEnd end_of(const wire::StepRecord& r) { return {r.epoch, r.number}; }
  std::optional<JoinedStep> join();
  JoinedStep take(StepEnd end);
  bool is_behind(const ToldSteps& told, StepEnd end) const;

  std::size_t expected_ = 0, held_ = 0;
  std::map<int, ToldSteps> ranks_;
  StepEnd last_;
  std::optional<double> waiting_since_;  ///< for ranks that are behind
};

}  // namespace hvd::launcher

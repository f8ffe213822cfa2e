/// @file step_join.h — joins the ranks' reports of the same step.  Pure.
#pragma once
#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "wire/shared/step_record.h"

namespace hvd::launcher {

/// One step, or several consecutive steps: the sums of each rank that has reported them.
struct JoinedStep {
  struct Part {
    int rank = 0;
    wire::StepRecord record;  ///< lengths and counts are sums
  };
  std::int64_t epoch = 0;
  std::int64_t number = 0;  ///< of the last step
  std::int64_t steps = 1;   ///< how many
  std::vector<Part> parts;  ///< by rank
};

/// Ranks report their steps in blocks, at different times.  One record may sum up several steps.  A joined step ends
/// where a record of every rank ends.  Memory is bounded.  If a rank reports nothing for long while others report much,
/// it is left out until its next report.
class StepJoin {
 public:
  /// @param ranks  how many must report before the first step is joined
  void expect(std::size_t ranks) { expected_ = ranks; }
  void add(int rank, const std::vector<wire::StepRecord>& records);
  /// The rank has ended, after its last report.
  void leave(int rank);
  /// The next step that is complete; nothing: none is.  @p now_seconds  of any steady clock
  std::optional<JoinedStep> next(double now_seconds);
  /// Call it after the last report of all ranks.  Returns the next remaining step, with the ranks that have reported
  /// it.
  std::optional<JoinedStep> next_left();
  /// True if no record waits for records of other ranks.
  bool is_empty() const { return held_ == 0; }

  static constexpr double longest_wait_seconds = 10;     ///< for a rank that reports nothing
  static constexpr std::size_t most_records = 1u << 18;  ///< 32 MiB

 private:
  /// The end of a step.  Epochs follow each other.
  struct StepEnd {
    std::int64_t epoch = 0, number = 0;
    auto operator<=>(const StepEnd&) const = default;
  };
  struct ToldSteps {
    std::deque<wire::StepRecord> records;  ///< not joined yet
    bool left = false;                     ///< the rank is left out until its next report
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

/// @file live_report.h — follows the steps of a running job, for hvdrun top and for the report at the end.
///
/// Knows no clock of its own.  Thread: the event loop's.
#pragma once
#include <array>
#include <map>
#include <string>
#include <vector>

#include "launcher/report/diagnosis/diagnosis.h"
#include "launcher/report/steps/step_join.h"
#include "launcher/report/steps/step_statistics.h"

namespace hvd::launcher {

class LiveReport {
 public:
  /// @param ranks  number of ranks in the present world
  void expect(std::size_t ranks) { join_.expect(ranks); }
  void place(int rank, const std::string& host) { places_[rank].host = host; }
  void give_cores(int rank, int cores) { places_[rank].cores = cores; }
  /// @param now_seconds  of any steady clock, here and below
  void add(int rank, const std::vector<wire::StepRecord>& records, double now_seconds);
  void ended(int rank) { join_.leave(rank); }
  /// Joins steps without the ranks that have been silent for too long.
  void turn(double now_seconds) { take(now_seconds); }
  /// True if no record waits for records of other ranks.
  bool is_quiet() const { return join_.is_empty(); }

  /// The statistics of all steps until now, without the warm-up.
  const StepStatistics& whole() const { return whole_; }
  Diagnosis diagnosis() const { return judged(whole_); }
  /// The last half minute.
  StepStatistics recent(double now_seconds) const;
  Diagnosis recent_diagnosis(double now_seconds) const { return judged(recent(now_seconds)); }
  /// Counts steps that are left.  Do not call add() afterwards.
  void finish();

  const std::map<int, RankPlace>& places() const { return places_; }

 private:
  static constexpr double slot_seconds = 5;
  static constexpr std::int64_t least_steps = 5;  ///< for a diagnosis

  struct TimeSlot {
    std::int64_t number = -1;  ///< since the clock's beginning
    StepStatistics steps;
  };
  void take(double now_seconds);
  void take(JoinedStep step, double now_seconds);
  void count(const JoinedStep& step, double now_seconds);
  Diagnosis judged(const StepStatistics& statistics) const;

  StepJoin join_;
  bool told_of_steps_ = false;  ///< by the program, in some world
  WarmUp warm_up_;
  StepStatistics whole_;
  std::array<TimeSlot, 7> recent_;
  std::map<int, RankPlace> places_;
  double last_seconds_ = 0;
};

}  // namespace hvd::launcher

#include "launcher/report/live_report.h"

namespace hvd::launcher {

void LiveReport::add(int rank, const std::vector<wire::StepRecord>& records, double now_seconds) {
  join_.add(rank, records);
  take(now_seconds);
}

void LiveReport::take(double now_seconds) {
  last_seconds_ = now_seconds;
  while (auto step = join_.next(now_seconds)) take(std::move(*step), now_seconds);
}

/// Rounds of operations count as steps only until a program reports a step.  Earlier rounds belong to the program's
/// start.
void LiveReport::take(JoinedStep step, double now_seconds) {
  const bool told = wire::is_told(step.epoch);
  if (told && !told_of_steps_) {
    told_of_steps_ = true;
    warm_up_ = {};
    whole_ = {};
    recent_ = {};
  }
  if (told != told_of_steps_) return;
  for (const JoinedStep& counted : warm_up_.pass(std::move(step))) count(counted, now_seconds);
}

void LiveReport::count(const JoinedStep& step, double now_seconds) {
  whole_.add(step);
  const auto number = static_cast<std::int64_t>(now_seconds / slot_seconds);
  TimeSlot& slot = recent_[static_cast<std::size_t>(number) % recent_.size()];
  if (slot.number != number) slot = {number, {}};
  slot.steps.add(step);
}

void LiveReport::finish() {
  while (auto step = join_.next_left()) take(std::move(*step), last_seconds_);
  for (const JoinedStep& counted : warm_up_.rest()) count(counted, last_seconds_);
}

StepStatistics LiveReport::recent(double now_seconds) const {
  const auto now = static_cast<std::int64_t>(now_seconds / slot_seconds);
  StepStatistics sum;
  for (const TimeSlot& slot : recent_)
    if (slot.number >= 0 && now - slot.number < static_cast<std::int64_t>(recent_.size())) sum += slot.steps;
  return sum;
}

Diagnosis LiveReport::judged(const StepStatistics& statistics) const {
  Diagnosis d = diagnose(statistics, places_);
  if (d.steps < least_steps) d.findings.clear();
  return d;
}

}  // namespace hvd::launcher

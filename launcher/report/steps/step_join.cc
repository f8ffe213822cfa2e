#include "launcher/report/steps/step_join.h"

#include <algorithm>

namespace hvd::launcher {

namespace {

void add_to(wire::StepRecord& sum, const wire::StepRecord& r) {
  sum.number = r.number, sum.epoch = r.epoch, sum.end_ns = r.end_ns;
  sum.step_ns += r.step_ns;
  sum.longest_ns = std::max(sum.longest_ns, r.longest_ns);
  sum.input_ns += r.input_ns;
  sum.waited_ns += r.waited_ns;
  sum.moved_ns += r.moved_ns;
  sum.collect_ns += r.collect_ns;
  sum.save_ns += r.save_ns;
  sum.compile_ns += r.compile_ns;
  sum.cpu_ns += r.cpu_ns;
  sum.run_delay_ns += r.run_delay_ns;
  sum.operation_delay_ns += r.operation_delay_ns;
  sum.read_bytes += r.read_bytes;
  sum.written_bytes += r.written_bytes;
  sum.operation_bytes += r.operation_bytes;
  if (r.resident_bytes) sum.resident_bytes = r.resident_bytes;
  sum.throttled_ns += r.throttled_ns;
  sum.operations += r.operations;
  sum.major_faults += r.major_faults;
  sum.made_ns += r.made_ns;
  sum.device_wait_ns += r.device_wait_ns;
  sum.loader = std::max(sum.loader, r.loader);
  sum.core = r.core;
  sum.link_round_trip_ns = std::max(sum.link_round_trip_ns, r.link_round_trip_ns);
  if (r.link_peer != sum.link_peer) {
    if (r.link_busy_ns <= sum.link_busy_ns) return;
    sum.link_peer = r.link_peer;
    sum.link_bytes = sum.link_busy_ns = 0;
  }
  sum.link_bytes += r.link_bytes, sum.link_busy_ns += r.link_busy_ns;
}

}  // namespace

void StepJoin::add(int rank, const std::vector<wire::StepRecord>& records) {
  if (records.empty()) return;
  ToldSteps& told = ranks_[rank];
  StepEnd last = told.records.empty() ? last_ : end_of(told.records.back());
  for (const wire::StepRecord& r : records) {
    if (end_of(r) <= last) continue;  // too late, or out of order
    last = end_of(r);
    told.records.push_back(r);
    ++held_;
  }
  told.left = false;
}

void StepJoin::leave(int rank) {
  if (const auto it = ranks_.find(rank); it != ranks_.end())
    it->second.left = true;
  else if (expected_ > 0)
    --expected_;
}

std::optional<JoinedStep> StepJoin::next(double now_seconds) {
  if (held_ == 0) return {};
  if (ranks_.size() >= expected_)
    if (auto step = join()) {
      waiting_since_.reset();
      return step;
    }
  if (held_ == 0) return {};
  if (!waiting_since_) waiting_since_ = now_seconds;
  if (now_seconds - *waiting_since_ < longest_wait_seconds && held_ <= most_records) return {};
  waiting_since_.reset();
  expected_ = std::min(expected_, ranks_.size());
  return next_left();
}

std::optional<JoinedStep> StepJoin::next_left() {
  StepEnd farthest = last_;
  for (const auto& [rank, told] : ranks_)
    if (!told.records.empty()) farthest = std::max(farthest, end_of(told.records.back()));
  for (auto& [rank, told] : ranks_) told.left |= is_behind(told, farthest);
  return join();
}

/// The rank has not reported up to there.
bool StepJoin::is_behind(const ToldSteps& told, StepEnd end) const {
  return told.records.empty() || end_of(told.records.back()) < end;
}

/// The earliest step at which a record of every rank ends.  Nothing: a rank is behind.
std::optional<JoinedStep> StepJoin::join() {
  StepEnd end = last_;
  for (auto& [rank, told] : ranks_) {
    while (!told.records.empty() && end_of(told.records.front()) <= last_) told.records.pop_front(), --held_;
    if (!told.records.empty()) end = std::max(end, end_of(told.records.front()));
  }
  if (held_ == 0) return {};
  for (bool alike = false; !alike;) {
    alike = true;
    for (const auto& [rank, told] : ranks_) {
      if (is_behind(told, end)) {
        if (!told.left) return {};
        continue;
      }
      const auto at = std::lower_bound(told.records.begin(), told.records.end(), end,
                                       [](const wire::StepRecord& r, StepEnd e) { return end_of(r) < e; });
      alike &= end_of(*at) == end;
      end = end_of(*at);
    }
  }
  return take(end);
}

JoinedStep StepJoin::take(StepEnd end) {
  JoinedStep step{end.epoch, end.number, 0, {}};
  for (auto& [rank, told] : ranks_) {
    JoinedStep::Part part{rank, {}};
    // Steps of a broken epoch are not added to the first step of the next epoch.
    for (; !told.records.empty() && end_of(told.records.front()) <= end; told.records.pop_front(), --held_)
      if (told.records.front().epoch == end.epoch) add_to(part.record, told.records.front());
    if (part.record.number) step.parts.push_back(part);
  }
  step.steps = end.number - (end.epoch == last_.epoch ? last_.number : 0);
  last_ = end;
  return step;
}

}  // namespace hvd::launcher

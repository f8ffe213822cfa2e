#include "trace/timeline_rank.h"

namespace hvd::trace {

namespace {

constexpr std::size_t max_open_batches = 1024, max_phases = 1024, max_waiting = 1u << 17;

}  // namespace

void Timeline::Rank::set_clock(const TraceClock& clock) {
  clock_ = clock;
  clock_changed();
}

void Timeline::Rank::on_start() {
  rows_.clear();
  batches_.clear();
  restarted();
}

void Timeline::Rank::on_track(std::uint32_t, TraceTrack track) {
  Row row;
  row.op = track.op;
  row.number = timeline_.row(track);
  rows_.push_back(std::move(row));
  row_named(rows_.size() - 1, track);
}

void Timeline::Rank::on_submitted(std::uint32_t track, std::int64_t ns) {
  Row& row = rows_[track - 1];
  if (row.submitted.size() >= max_waiting) return;
  row.submitted.push_back(ns);
  submitted(track - 1, ns);
}

/// NEGOTIATE_<OP> ends at @p ns.
void Timeline::Rank::negotiated(std::uint32_t track, std::int64_t ns, bool failed) {
  Row& row = rows_[track - 1];
  // After a loss of records, `submitted` may hold older submissions.  The last submission until ns is the right one.
  while (!row.shown && row.first + 1 < row.submitted.size() && row.submitted[row.first + 1] <= ns) row.pop();
  if (!row.waits() || row.submitted[row.first] > ns + same_time_ns) return;
  ns = std::max(ns, row.ended_ns);  // a GPU may have worked on the row's previous operation until then
  if (row.shown)
    negotiation(track - 1, row.next(), std::max(ns, row.next()), failed);
  else
    negotiation(track - 1, std::min(row.next(), ns), ns, failed);
  row.shown = false;
  row.pop();
}

Timeline::Rank::Batch* Timeline::Rank::find(std::uint32_t number) {
  // From the end: usually the batch begun last is asked for.
  for (std::size_t i = batches_.size(); i-- > 0;)
    if (batches_[i].number == number) return &batches_[i];
  return nullptr;
}

void Timeline::Rank::on_batch_begin(std::uint32_t number, std::int64_t ns) {
  if (batches_.size() == max_open_batches) batches_.erase(batches_.begin());
  batches_.push_back({number, ns, false, {}, {}});
}

void Timeline::Rank::on_batch_tensor(std::uint32_t track) {
  if (batches_.empty() || batches_.back().tracks.size() >= rows_.size()) return;
  batches_.back().tracks.push_back(track);
}

void Timeline::Rank::on_phase_begin(std::uint32_t number, Phase phase, std::int64_t ns) {
  Batch* batch = find(number);
  if (batch == nullptr || batch->phases.size() >= max_phases) return;
  if (!batch->phases.empty()) {
    // A GPU may begin its first phase before the engine records the end of its own phase.
    Span& before = batch->phases.back();
    before.end_ns = std::min(before.end_ns, std::max(before.begin_ns, ns));
  }
  batch->phases.push_back({phase, ns, -1});
}

void Timeline::Rank::on_phase_end(std::uint32_t number, Phase phase, std::int64_t ns) {
  Batch* batch = find(number);
  if (batch == nullptr) return;
  for (std::size_t i = batch->phases.size(); i-- > 0;) {
    Span& span = batch->phases[i];
    if (span.phase != phase || span.end_ns >= 0) continue;
    span.end_ns = ns;
    return;
  }
}

void Timeline::Rank::finish(Batch& batch, std::int64_t ns) {
  // Events of one row must not overlap.  The batch therefore begins after the previous operations of all its rows.
  std::int64_t free_ns = batch.begin_ns;
  for (const std::uint32_t track : batch.tracks) free_ns = std::max(free_ns, rows_[track - 1].ended_ns);
  if (!batch.shown) {
    if (free_ns > batch.begin_ns) {
      batch.begin_ns = free_ns;
      for (Span& span : batch.phases) span.begin_ns = std::max(span.begin_ns, free_ns);
    }
    batch_begun(batch);
  }
  for (const std::uint32_t track : batch.tracks) {
    if (!batch.shown) negotiated(track, batch.begin_ns, false);
    operation(track - 1, batch, ns);
    rows_[track - 1].ended_ns = ns;
  }
  batch_ended(batch, ns);
}

void Timeline::Rank::on_batch_end(std::uint32_t number, std::int64_t ns) {
  Batch* batch = find(number);
  if (batch == nullptr) return;
  finish(*batch, ns);
  batches_.erase(batches_.begin() + (batch - batches_.data()));
}

void Timeline::Rank::on_failed(std::uint32_t track, std::int64_t ns) {
  negotiated(track, ns, true);
  rows_[track - 1].ended_ns = ns;
}

void Timeline::Rank::on_lost(bool engine, std::uint64_t records) {
  lost_ += records;
  timeline_.lost_ += records;
  // The ends of batches may be among the lost records.  The state of all batches is unknown.
  if (engine) batches_.clear();
  lost(lost_);
}

void Timeline::Rank::show(Batch& batch) {
  batch_begun(batch);
  batch.shown = true;
  for (const std::uint32_t track : batch.tracks) {
    negotiated(track, batch.begin_ns, false);
    operation_begun(track - 1, batch);
  }
}

void Timeline::Rank::show_pending(std::int64_t before_ns) {
  for (Batch& batch : batches_)
    if (!batch.shown && at(batch.begin_ns) <= before_ns) show(batch);
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    Row& row = rows_[i];
    if (!row.waits() || row.shown || at(row.next()) > before_ns) continue;
    row.shown = true;
    negotiation_begun(i);
  }
}

}  // namespace hvd::trace

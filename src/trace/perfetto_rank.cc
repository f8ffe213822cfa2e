#include "trace/perfetto_rank.h"

#include <algorithm>
#include <utility>

#include "base/fnv1a.h"
#include "base/format.h"
#include "trace/trace_names.h"

namespace hvd::trace {

namespace {

/// Shorter waits are not shown.  Even punctual ranks submit some microseconds apart.
constexpr std::int64_t shortest_wait_ns = 20'000;
constexpr std::size_t most_coming = 1u << 17;
constexpr std::size_t most_parts = 8;  ///< depth of nested parts

std::string lower(std::string_view upper) {
  std::string text(upper);
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

}  // namespace

PerfettoRank::PerfettoRank(Timeline& timeline, int number, PerfettoWaits& shared)
    : Rank(timeline, number),
      shared_(shared),
      packets_(shared.packets),
      track_(packets_.add_track(0, "rank " + std::to_string(number), 2 * number + 1)),
      bytes_({packets_.add_counter(track_, "bytes under way", PerfettoPackets::Unit::bytes, 0)}),
      tensors_track_(packets_.add_track(track_, "tensors", 2)) {
  shared_.add_rank(number, "rank " + std::to_string(number));
}

void PerfettoRank::name(std::string_view host) {
  const std::string text = formatted("rank {}{}", number_, host.empty() ? "" : " (" + std::string(host) + ")");
  packets_.rename(track_, text);
  shared_.add_rank(number_, text);
}

void PerfettoRank::clock_changed() {
  timeline_.note(R"({"ph":"M","name":"hvd_clock","pid":)" + std::to_string(number_) + R"(,"args":{"offset_ns":)" +
                 std::to_string(clock_.offset_ns) + R"(,"uncertainty_ns":)" + std::to_string(clock_.uncertainty_ns) +
                 "}}");
}

void PerfettoRank::mark(std::string_view text, std::int64_t ns, std::string_view arguments) {
  const std::string whole = std::string(text) + (arguments.empty() ? "" : " ") + std::string(arguments);
  packets_.instant(track_, whole, shared_.time(ns));
  timeline_.end_event();
}

void PerfettoRank::stage(std::string_view name, std::int64_t begin_ns, std::int64_t end_ns) {
  packets_.begin(track_, name, shared_.time(begin_ns));
  packets_.end(track_, shared_.time(end_ns) - 1);
  timeline_.end_event();
  launched_ns_ = end_ns;
}

/// The first clock record after a start comes from the end of init(), where recording begins.
void PerfettoRank::on_clock(std::int64_t ns) {
  const std::int64_t begin_ns = std::exchange(launched_ns_, -1);
  if (begin_ns < 0 || at(ns) <= begin_ns) return;
  packets_.begin(track_, "interpreter, imports, init", shared_.time(begin_ns));
  packets_.end(track_, time(ns));
  timeline_.end_event();
}

void PerfettoRank::slice(std::uint64_t track, std::string_view name, std::int64_t begin_ns, std::int64_t end_ns,
                         std::uint64_t flow) {
  packets_.begin(track, name, time(begin_ns), flow);
  packets_.end(track, time(std::max(begin_ns, end_ns)));
  timeline_.end_event();
}

std::uint64_t PerfettoRank::runtime_track() {
  if (runtime_track_ == 0) runtime_track_ = packets_.add_track(track_, "runtime", 1);
  return runtime_track_;
}

void PerfettoRank::on_cycle(std::int64_t ns) {
  packets_.instant(runtime_track(), "CYCLE_START", time(ns));
  timeline_.end_event();
}

std::uint64_t PerfettoRank::steps_track() {
  if (step_.track == 0) {
    step_.track = packets_.add_track(0, formatted("rank {} steps", number_), 2 * number_);
    step_.time_track = packets_.add_counter(step_.track, "step time", PerfettoPackets::Unit::nanoseconds, 0);
  }
  return step_.track;
}

void PerfettoRank::end_parts(std::int64_t ns) {
  for (; !step_.parts.empty(); step_.parts.pop_back()) packets_.end(steps_track(), time(ns));
}

/// Ends the step under way, and begins the next one at once.  The file therefore also shows a step that hangs.
void PerfettoRank::on_step(std::int64_t number, std::int64_t ns) {
  const std::vector<TracedPart> within = step_.parts;
  end_parts(ns);
  if (step_.is_open) packets_.end(steps_track(), time(ns));
  if (step_.is_open) packets_.counter(step_.time_track, ns - step_.began_ns, time(ns));
  step_.began_ns = ns;
  step_.is_open = number >= 0;
  if (step_.is_open) {
    packets_.begin(steps_track(), formatted("step {}", number + 1), time(ns));
    for (const TracedPart part : within) on_part(part, true, ns);
  }
  timeline_.end_event();
}

void PerfettoRank::on_part(TracedPart part, bool begins, std::int64_t ns) {
  if (begins) {
    if (step_.parts.size() == most_parts) return;
    step_.parts.push_back(part);
    packets_.begin(steps_track(), part_name(part), time(ns));
    return timeline_.end_event();
  }
  const auto at = std::find(step_.parts.rbegin(), step_.parts.rend(), part);
  for (auto left = step_.parts.rend() - at;
       at != step_.parts.rend() && step_.parts.size() >= static_cast<std::size_t>(left); step_.parts.pop_back())
    packets_.end(steps_track(), time(ns));
  timeline_.end_event();
}

void PerfettoRank::lost(std::uint64_t in_all) {
  shared_.forget();
  timeline_.note(R"({"ph":"M","name":"hvd_lost","pid":)" + std::to_string(number_) + R"(,"args":{"records":)" +
                 std::to_string(in_all) + "}}");
  mark(formatted("{} records were dropped", in_all), at(free_ns_));
}

void PerfettoRank::restarted() {
  ++starts_;
  step_.parts.clear();
  step_.is_open = false;
  tracks_.clear();
  bytes_.coming.clear();
  bytes_.value = 0;
}

void PerfettoRank::row_named(std::size_t index, const TraceTrack& track) {
  const std::string name = track.name.empty() ? "(no name)" : track.name;
  const std::string shown = name + "  " + dtype_name(track.dtype) + " " + shape_text(track.shape);
  const std::string key = formatted("{} {}", row(index).number, shown);
  const auto [place, fresh] = tensor_tracks_.try_emplace(key, 0);
  if (fresh) place->second = packets_.add_track(tensors_track_, shown, static_cast<std::int32_t>(row(index).number));
  std::uint64_t bytes = dtype_bytes(track.dtype);
  for (const std::uint64_t dim : track.shape) bytes *= dim;
  // The flow numbers of a row's operations start at a hash of the row.  All ranks get the same number for an operation.
  // Ranks that write files of their own get the same number for the same tensor.
  tracks_.push_back({place->second, bytes, fnv1a(formatted("{} {} {}", starts_, track.home, track.name)) | 1});
}

void PerfettoRank::submitted(std::size_t index, std::int64_t ns) {
  RowTrack& track = tracks_[index];
  shared_.arrived(number_, key(index), track.submissions++, at(ns));
  if (bytes_.coming.size() < most_coming) bytes_.coming.emplace_back(ns, track.bytes);
  timeline_.end_event();
}

void PerfettoRank::negotiation(std::size_t index, std::int64_t begin_ns, std::int64_t end_ns, bool failed) {
  const std::string name = "NEGOTIATE_" + std::string(op_name(row(index).op)) + (failed ? " (failed)" : "");
  if (!row(index).shown) return slice(tracks_[index].track, name, begin_ns, end_ns, flow(index));
  packets_.end(tracks_[index].track, time(end_ns));
  timeline_.end_event();
}

void PerfettoRank::negotiation_begun(std::size_t index) {
  packets_.begin(tracks_[index].track, "NEGOTIATE_" + std::string(op_name(row(index).op)), time(row(index).next()),
                 flow(index));
  timeline_.end_event();
}

/// Adds the bytes submitted until @p until_ns, subtracts @p done bytes, and writes the counter's value.
void PerfettoRank::count_bytes(std::int64_t until_ns, std::uint64_t done) {
  while (!bytes_.coming.empty() && bytes_.coming.front().first <= until_ns) {
    bytes_.value += bytes_.coming.front().second;
    bytes_.coming.pop_front();
  }
  bytes_.value -= std::min(bytes_.value, done);
  bytes_.at_ns = std::max(bytes_.at_ns, until_ns);
  packets_.counter(bytes_.track, static_cast<std::int64_t>(bytes_.value), time(bytes_.at_ns));
}

void PerfettoRank::batch_begun(const Batch& batch) {
  if (batch.tracks.empty()) return;
  shared_.operation_at(at(batch.begin_ns));
  count_bytes(batch.begin_ns, 0);
  PerfettoWaits::BatchWait wait{number_, track_, free_ns_, batch.begin_ns, {}};
  for (const std::uint32_t track : batch.tracks) {
    Row& of = row(track - 1);
    if (!of.waits()) continue;
    wait.begin_ns = std::max(wait.begin_ns, of.submitted[of.first]);
    wait.tensors.emplace_back(key(track - 1), of.taken);
  }
  if (wait.end_ns - wait.begin_ns < shortest_wait_ns || wait.tensors.empty()) return;
  wait.begin_ns = at(wait.begin_ns);
  wait.end_ns = at(wait.end_ns);
  shared_.wait(std::move(wait));
}

void PerfettoRank::operation_begun(std::size_t index, const Batch& batch) {
  if (batch.tracks.front() == index + 1)
    packets_.begin(track_, lower(op_name(row(index).op)), time(std::max(batch.begin_ns, free_ns_)));
  packets_.begin(tracks_[index].track, op_name(row(index).op), time(batch.begin_ns), flow(index) - 1);
  timeline_.end_event();
}

void PerfettoRank::operation(std::size_t index, const Batch& batch, std::int64_t end_ns) {
  const std::uint64_t track = tracks_[index].track;
  const TraceOp op = row(index).op;
  if (batch.shown) {
    packets_.end(track, time(end_ns));
    timeline_.end_event();
    return;
  }
  // flow() is one too high here: the row's `taken` already counts this operation, whose negotiation has ended.
  packets_.begin(track, op_name(op), time(batch.begin_ns), flow(index) - 1);
  for (const Span& span : batch.phases)
    slice(track, phase_name(span.phase, op), span.begin_ns, span.end_ns < 0 ? end_ns : span.end_ns);
  packets_.end(track, time(end_ns));
  timeline_.end_event();
}

void PerfettoRank::batch_ended(const Batch& batch, std::int64_t end_ns) {
  if (batch.tracks.empty()) return;
  std::uint64_t bytes = 0;
  for (const std::uint32_t track : batch.tracks) bytes += tracks_[track - 1].bytes;
  // Batches of a device may overlap.  In the rank's track a batch begins where the batch before it ended.
  const std::int64_t begin_ns = std::max(batch.begin_ns, free_ns_);
  if (!batch.shown && end_ns > begin_ns)
    packets_.begin_counted(track_, lower(op_name(row(batch.tracks.front() - 1).op)), time(begin_ns), "tensors",
                           batch.tracks.size());
  if (batch.shown || end_ns > begin_ns) packets_.end(track_, time(std::max(begin_ns, end_ns)));
  free_ns_ = std::max(free_ns_, end_ns);
  count_bytes(end_ns, bytes);
  timeline_.end_event();
}

}  // namespace hvd::trace

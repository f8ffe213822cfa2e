#include "trace/timeline.h"

#include <algorithm>

#include "base/json_text.h"
#include "trace/trace_names.h"

namespace hvd::trace {

namespace {

constexpr std::int64_t pending_shown_after_ns = 1'000'000'000;
constexpr std::size_t flush_bytes = 64u << 10;
constexpr std::size_t max_rows_bytes = 256u << 20;  ///< names of all rows; more share row 0
constexpr std::size_t max_open_batches = 1024, max_phases = 1024, max_waiting = 1u << 17;
/// Clocks of two cores may differ by this much.
constexpr std::int64_t same_time_ns = 10'000;

std::string place(int rank, std::uint32_t row) {
  return ",\"pid\":" + std::to_string(rank) + ",\"tid\":" + std::to_string(row);
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string text = "[";
  for (const std::uint64_t dim : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(dim);
  return text + "]";
}

}  // namespace

/// What is known of one rank: its rows, and what it has under way.
class Timeline::Rank : public TraceListener {
 public:
  Rank(Timeline& timeline, int number) : timeline_(timeline), number_(number), decoder_(*this) {}

  void name(std::string_view host);
  void set_clock(const TraceClock& clock);
  void mark(std::string_view text, std::int64_t ns);
  void show_pending(std::int64_t before_ns);

  TraceDecoder& decoder() { return decoder_; }
  const TraceClock& clock() const { return clock_; }

  void on_start() override;
  void on_track(std::uint32_t track, TraceTrack description) override;
  void on_submitted(std::uint32_t track, std::int64_t ns) override;
  void on_batch_begin(std::uint32_t batch, std::int64_t ns) override;
  void on_batch_tensor(std::uint32_t track) override;
  void on_phase_begin(std::uint32_t batch, Phase phase, std::int64_t ns) override;
  void on_phase_end(std::uint32_t batch, Phase phase, std::int64_t ns) override;
  void on_batch_end(std::uint32_t batch, std::int64_t ns) override;
  void on_failed(std::uint32_t track, std::int64_t ns) override;
  void on_cycle(std::int64_t ns) override;
  void on_lost(bool engine, std::uint64_t records) override;

 private:
  struct Row {
    TraceOp op = TraceOp::allreduce;
    bool shown = false;         ///< NEGOTIATE of the first one that waits is in the file as begun
    std::int64_t ended_ns = 0;  ///< of its last operation
    std::string tail;           ///< `,"pid":0,"tid":7},\n`
    std::string arguments;      ///< likewise, with dtype and shape
    std::string ready;          ///< the mark in the home rank's row, after its time
    /// Submissions that no batch has taken yet, from `first` on.  Several: a rank's threads arrive before its engine.
    std::vector<std::int64_t> submitted;
    std::size_t first = 0;

    bool waits() const { return first < submitted.size(); }
    std::int64_t next() const { return std::max(submitted[first], ended_ns); }
    void pop() {
      if (++first < submitted.size()) return;
      submitted.clear();
      first = 0;
    }
  };
  struct Span {
    Phase phase;
    std::int64_t begin_ns, end_ns;  ///< end_ns < 0: under way
  };
  struct Batch {
    std::uint32_t number;
    std::int64_t begin_ns;
    bool shown = false;  ///< <OP> is in the file as begun
    std::vector<std::uint32_t> tracks;
    std::vector<Span> phases;
  };
  /// One piece of text for all tensors of a batch: the event up to its row.
  struct Heads {
    TraceOp op;
    std::string operation;
    std::vector<std::string> phases;
  };

  Batch* find(std::uint32_t number);
  void begin_event(char phase, std::string_view name, std::int64_t ns);
  void negotiated(Row& row, std::int64_t ns, std::string_view tail);
  void ready(const Row& row);
  void show(Batch& batch);
  void finish(Batch& batch, std::int64_t ns);
  Heads heads(const Batch& batch, TraceOp op, std::int64_t end_ns) const;
  void name_row_zero();

  std::int64_t at(std::int64_t ns) const { return ns + clock_.offset_ns; }

  Timeline& timeline_;
  const int number_;
  TraceDecoder decoder_;
  TraceClock clock_;
  bool row_zero_named_ = false;
  std::vector<Row> rows_;  ///< [track - 1]
  std::vector<Batch> batches_;
  std::uint64_t lost_ = 0;
};

// ---- one rank ----

void Timeline::Rank::name(std::string_view host) {
  std::string& out = timeline_.text_;
  const std::string pid = std::to_string(number_);
  out += R"({"ph":"M","name":"process_name","pid":)" + pid + R"(,"args":{"name":)";
  append_json_string(out, "rank " + pid + (host.empty() ? "" : " (" + std::string(host) + ")"));
  out += "}},\n";
  timeline_.end_line();
  out += R"({"ph":"M","name":"process_sort_index","pid":)" + pid + R"(,"args":{"sort_index":)" + pid + "}},\n";
  timeline_.end_line();
}

void Timeline::Rank::set_clock(const TraceClock& clock) {
  clock_ = clock;
  std::string& out = timeline_.text_;
  out += R"({"ph":"M","name":"hvd_clock","pid":)" + std::to_string(number_) + R"(,"args":{"offset_ns":)" +
         std::to_string(clock.offset_ns) + R"(,"uncertainty_ns":)" + std::to_string(clock.uncertainty_ns) + "}},\n";
  timeline_.end_line();
}

void Timeline::Rank::name_row_zero() {
  if (row_zero_named_) return;
  row_zero_named_ = true;
  timeline_.text_ += R"({"ph":"M","name":"thread_name")" + place(number_, 0) +
                     R"(,"args":{"name":"runtime"}},)"
                     "\n";
  timeline_.end_line();
}

void Timeline::Rank::mark(std::string_view text, std::int64_t ns) {
  name_row_zero();
  std::string& out = timeline_.text_;
  out += R"({"ph":"i","s":"p","name":)";
  append_json_string(out, text);
  timeline_.append_time(R"(,"ts":)", ns);
  out += place(number_, 0) + "},\n";
  timeline_.end_line();
}

void Timeline::Rank::on_start() {
  rows_.clear();
  batches_.clear();
}

void Timeline::Rank::on_track(std::uint32_t, TraceTrack track) {
  const std::uint32_t row_number = timeline_.row(track);
  Row row;
  row.op = track.op;
  row.tail = place(number_, row_number) + "},\n";
  row.arguments = place(number_, row_number) + R"(,"args":{"dtype":")" + dtype_name(track.dtype) + R"(","shape":")" +
                  shape_text(track.shape) + "\"}},\n";
  row.ready = place(track.home, row_number) + "},\n";
  rows_.push_back(std::move(row));
  std::string& out = timeline_.text_;
  out += R"({"ph":"M","name":"thread_name")" + place(number_, row_number) + R"(,"args":{"name":)";
  append_json_string(out, track.name.empty() ? "(no name)" : track.name);
  out += "}},\n";
  timeline_.end_line();
}

void Timeline::Rank::on_submitted(std::uint32_t track, std::int64_t ns) {
  Row& row = rows_[track - 1];
  if (row.submitted.size() < max_waiting) row.submitted.push_back(ns);
}

/// `{"ph":"X","name":"…","ts":…` without its end.
void Timeline::Rank::begin_event(char phase, std::string_view name, std::int64_t ns) {
  std::string& out = timeline_.text_;
  out += R"({"ph":")";
  out += phase;
  out += R"(","name":")";
  out += name;
  timeline_.append_time(R"(","ts":)", at(ns));
}

/// The mark "this rank is ready", in the row of the set's first rank.
void Timeline::Rank::ready(const Row& row) {
  std::string& out = timeline_.text_;
  out += R"({"ph":"i","s":"t","name":")";
  append_number(out, number_);
  timeline_.append_time(R"(","ts":)", at(row.next()));
  out += row.ready;
  timeline_.end_line();
}

/// NEGOTIATE_<OP> ends at @p ns.
void Timeline::Rank::negotiated(Row& row, std::int64_t ns, std::string_view tail) {
  // Where records were lost, an older submission may still be there: the last one before ns is the right one.
  while (!row.shown && row.first + 1 < row.submitted.size() && row.submitted[row.first + 1] <= ns) row.pop();
  if (!row.waits() || row.submitted[row.first] > ns + same_time_ns) return;
  ns = std::max(ns, row.ended_ns);  // a GPU may still have been at work on the one before
  std::string& out = timeline_.text_;
  if (row.shown) {
    row.shown = false;
    out += R"({"ph":"E")";
    timeline_.append_time(R"(,"ts":)", at(std::max(ns, row.next())));
    out += tail;
    timeline_.end_line();
  } else {
    const std::int64_t begin_ns = std::min(row.next(), ns);
    out += R"({"ph":"X","name":"NEGOTIATE_)";
    out += op_name(row.op);
    timeline_.append_time(R"(","ts":)", at(begin_ns));
    out += R"(,"dur":)";
    append_us(out, ns - begin_ns);
    out += tail;
    timeline_.end_line();
    ready(row);
  }
  row.pop();
}

Timeline::Rank::Batch* Timeline::Rank::find(std::uint32_t number) {
  // The one begun last is the usual one.
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
  if (batch != nullptr && batch->phases.size() < max_phases) batch->phases.push_back({phase, ns, -1});
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

Timeline::Rank::Heads Timeline::Rank::heads(const Batch& batch, TraceOp op, std::int64_t end_ns) const {
  const auto event = [&](std::string_view name, std::int64_t begin, std::int64_t end) {
    std::string head = R"({"ph":"X","name":")" + std::string(name) + R"(","ts":)";
    append_us(head, at(begin) - timeline_.origin_ns_);
    head += R"(,"dur":)";
    append_us(head, std::max<std::int64_t>(0, end - begin));
    return head;
  };
  Heads made{op, event(op_name(op), batch.begin_ns, end_ns), {}};
  for (const Span& span : batch.phases)
    made.phases.push_back(event(phase_name(span.phase, op), span.begin_ns, span.end_ns < 0 ? end_ns : span.end_ns));
  return made;
}

void Timeline::Rank::finish(Batch& batch, std::int64_t ns) {
  std::string& out = timeline_.text_;
  // Events of one row must not overlap: it begins when a GPU has ended what the row showed before.
  std::int64_t free_ns = batch.begin_ns;
  for (const std::uint32_t track : batch.tracks) free_ns = std::max(free_ns, rows_[track - 1].ended_ns);
  if (!batch.shown && free_ns > batch.begin_ns) {
    batch.begin_ns = free_ns;
    for (Span& span : batch.phases) span.begin_ns = std::max(span.begin_ns, free_ns);
  }
  Heads head{TraceOp::allreduce, {}, {}};
  for (const std::uint32_t track : batch.tracks) {
    Row& row = rows_[track - 1];
    if (head.operation.empty() || head.op != row.op) head = heads(batch, row.op, ns);
    if (batch.shown) {
      out += R"({"ph":"E")";
      timeline_.append_time(R"(,"ts":)", at(ns));
      out += row.arguments;
    } else {
      negotiated(row, batch.begin_ns, row.tail);
      out += head.operation;
      out += row.arguments;
    }
    row.ended_ns = ns;
    timeline_.end_line();
    for (const std::string& phase : head.phases) {
      out += phase;
      out += row.tail;
      timeline_.end_line();
    }
  }
}

void Timeline::Rank::on_batch_end(std::uint32_t number, std::int64_t ns) {
  Batch* batch = find(number);
  if (batch == nullptr) return;
  finish(*batch, ns);
  batches_.erase(batches_.begin() + (batch - batches_.data()));
}

void Timeline::Rank::on_failed(std::uint32_t track, std::int64_t ns) {
  Row& row = rows_[track - 1];
  std::string tail = row.tail;
  tail.replace(tail.size() - 3, 3,
               R"(,"args":{"failed":true}},)"
               "\n");
  negotiated(row, ns, tail);
  row.ended_ns = ns;
}

void Timeline::Rank::on_cycle(std::int64_t ns) {
  name_row_zero();
  begin_event('i', "CYCLE_START", ns);
  timeline_.text_ += R"(,"s":"t")" + place(number_, 0) + "},\n";
  timeline_.end_line();
}

void Timeline::Rank::on_lost(bool engine, std::uint64_t records) {
  lost_ += records;
  timeline_.lost_ += records;
  // Ends may be among what was lost: nothing is known any more about what was under way.
  if (engine) batches_.clear();
  std::string& out = timeline_.text_;
  out += R"({"ph":"M","name":"hvd_lost","pid":)" + std::to_string(number_) + R"(,"args":{"records":)" +
         std::to_string(lost_) + "}},\n";
  timeline_.end_line();
}

void Timeline::Rank::show(Batch& batch) {
  batch.shown = true;
  for (const std::uint32_t track : batch.tracks) {
    Row& row = rows_[track - 1];
    negotiated(row, batch.begin_ns, row.tail);
    begin_event('B', op_name(row.op), batch.begin_ns);
    timeline_.text_ += row.arguments;
    timeline_.end_line();
  }
}

void Timeline::Rank::show_pending(std::int64_t before_ns) {
  for (Batch& batch : batches_)
    if (!batch.shown && at(batch.begin_ns) <= before_ns) show(batch);
  for (Row& row : rows_) {
    if (!row.waits() || row.shown || at(row.next()) > before_ns) continue;
    row.shown = true;
    begin_event('B', "NEGOTIATE_" + std::string(op_name(row.op)), row.next());
    timeline_.text_ += row.tail;
    timeline_.end_line();
    ready(row);
  }
}

// ---- all ranks ----

Timeline::Timeline(std::int64_t origin_ns, Emit emit) : origin_ns_(origin_ns), emit_(std::move(emit)) {}
Timeline::~Timeline() = default;

Timeline::Rank& Timeline::rank(int number) {
  std::unique_ptr<Rank>& slot = ranks_[number];
  if (!slot) slot = std::make_unique<Rank>(*this, number);
  return *slot;
}

std::uint32_t Timeline::row(const TraceTrack& track) {
  std::string key = std::to_string(track.home) + ' ' + track.name;
  if (rows_bytes_ > max_rows_bytes && !rows_.contains(key)) return 0;
  const std::size_t bytes = key.size();
  const auto [place, fresh] = rows_.try_emplace(std::move(key), static_cast<std::uint32_t>(rows_.size() + 1));
  if (fresh) rows_bytes_ += bytes;
  return place->second;
}

void Timeline::append_time(std::string_view key, std::int64_t ns) {
  text_ += key;
  append_us(text_, ns - origin_ns_);
}

void Timeline::end_line() {
  ++events_;
  if (text_.size() >= flush_bytes) flush();
}

void Timeline::flush() {
  if (!text_.empty()) emit_(text_);
  text_.clear();
}

void Timeline::name_rank(int number, std::string_view host) { rank(number).name(host); }
void Timeline::set_clock(int number, const TraceClock& clock) { rank(number).set_clock(clock); }

bool Timeline::feed(int number, std::span<const std::uint8_t> body) { return rank(number).decoder().feed(body); }

std::string Timeline::why(int number) const {
  const auto found = ranks_.find(number);
  return found == ranks_.end() ? std::string{} : found->second->decoder().error();
}

void Timeline::mark(int number, std::string_view text, std::int64_t now_ns) { rank(number).mark(text, now_ns); }

void Timeline::show_pending(std::int64_t now_ns) {
  for (const auto& [number, rank] : ranks_)
    rank->show_pending(now_ns == INT64_MAX ? now_ns : now_ns - pending_shown_after_ns);
}

void Timeline::rank_ended(int number, std::string_view text, std::int64_t now_ns) {
  rank(number).show_pending(INT64_MAX);
  if (!text.empty()) rank(number).mark(text, now_ns);
}

void Timeline::show_all() {
  for (const auto& [number, rank] : ranks_) rank->show_pending(INT64_MAX);
  flush();
}

std::string Timeline::ending(std::string_view text) {
  std::string line = R"({"ph":"M","name":"hvd_end","pid":0,"args":{"text":)";
  append_json_string(line, text);
  return line + "}}\n]\n";
}

}  // namespace hvd::trace

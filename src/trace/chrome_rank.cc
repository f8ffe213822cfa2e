#include "trace/chrome_rank.h"

#include "base/json_text.h"
#include "trace/trace_names.h"

namespace hvd::trace {

namespace {

std::string place(int rank, std::uint32_t row) {
  return ",\"pid\":" + std::to_string(rank) + ",\"tid\":" + std::to_string(row);
}

}  // namespace

void ChromeRank::name(std::string_view host) {
  const std::string pid = std::to_string(number_);
  std::string line = R"({"ph":"M","name":"process_name","pid":)" + pid + R"(,"args":{"name":)";
  append_json_string(line, "rank " + pid + (host.empty() ? "" : " (" + std::string(host) + ")"));
  timeline_.describe(line + "}},\n");
  timeline_.describe(R"({"ph":"M","name":"process_sort_index","pid":)" + pid + R"(,"args":{"sort_index":)" + pid +
                     "}},\n");
}

void ChromeRank::clock_changed() {
  timeline_.describe(R"({"ph":"M","name":"hvd_clock","pid":)" + std::to_string(number_) + R"(,"args":{"offset_ns":)" +
                     std::to_string(clock_.offset_ns) + R"(,"uncertainty_ns":)" +
                     std::to_string(clock_.uncertainty_ns) + "}},\n");
}

void ChromeRank::name_row_zero() {
  if (row_zero_named_) return;
  row_zero_named_ = true;
  timeline_.describe(R"({"ph":"M","name":"thread_name")" + place(number_, 0) +
                     R"(,"args":{"name":"runtime"}},)"
                     "\n");
}

void ChromeRank::mark(std::string_view text, std::int64_t ns, std::string_view arguments) {
  name_row_zero();
  std::string& out = timeline_.text_;
  out += R"({"ph":"i","s":"p","name":)";
  append_json_string(out, text);
  timeline_.append_time(R"(,"ts":)", ns);
  out += place(number_, 0);
  if (!arguments.empty()) out += R"(,"args":)" + std::string(arguments);
  out += "},\n";
  timeline_.end_event();
}

void ChromeRank::row_named(std::size_t index, const TraceTrack& track) {
  const std::string here = place(number_, row(index).number);
  texts_.push_back({here + "},\n",
                    here + R"(,"args":{"dtype":")" + dtype_name(track.dtype) + R"(","shape":")" +
                        shape_text(track.shape) + "\"}},\n",
                    place(track.home, row(index).number) + "},\n"});
  std::string line = R"({"ph":"M","name":"thread_name")" + here + R"(,"args":{"name":)";
  append_json_string(line, track.name.empty() ? "(no name)" : track.name);
  timeline_.describe(line + "}},\n");
}

/// Appends the beginning of an event, such as `{"ph":"X","name":"…","ts":…`.
void ChromeRank::begin_event(char phase, std::string_view name, std::int64_t ns) {
  std::string& out = timeline_.text_;
  out += R"({"ph":")";
  out += phase;
  out += R"(","name":")";
  out += name;
  timeline_.append_time(R"(","ts":)", at(ns));
}

/// Writes the mark "this rank is ready" to the row of the home rank, which is the set's first rank.
void ChromeRank::ready(std::size_t index) {
  std::string& out = timeline_.text_;
  out += R"({"ph":"i","s":"t","name":")";
  append_number(out, number_);
  timeline_.append_time(R"(","ts":)", at(row(index).next()));
  out += texts_[index].ready;
  timeline_.end_event();
}

void ChromeRank::negotiation(std::size_t index, std::int64_t begin_ns, std::int64_t end_ns, bool failed) {
  std::string tail = texts_[index].tail;
  if (failed)
    tail.replace(tail.size() - 3, 3,
                 R"(,"args":{"failed":true}},)"
                 "\n");
  std::string& out = timeline_.text_;
  if (row(index).shown) {
    out += R"({"ph":"E")";
    timeline_.append_time(R"(,"ts":)", at(end_ns));
  } else {
    out += R"({"ph":"X","name":"NEGOTIATE_)";
    out += op_name(row(index).op);
    timeline_.append_time(R"(","ts":)", at(begin_ns));
    out += R"(,"dur":)";
    append_us(out, end_ns - begin_ns);
  }
  out += tail;
  timeline_.end_event();
  if (!row(index).shown) ready(index);
}

void ChromeRank::negotiation_begun(std::size_t index) {
  begin_event('B', "NEGOTIATE_" + std::string(op_name(row(index).op)), row(index).next());
  timeline_.text_ += texts_[index].tail;
  timeline_.end_event();
  ready(index);
}

void ChromeRank::operation_begun(std::size_t index, const Batch& batch) {
  begin_event('B', op_name(row(index).op), batch.begin_ns);
  timeline_.text_ += texts_[index].arguments;
  timeline_.end_event();
}

void ChromeRank::make_heads(const Batch& batch, TraceOp op, std::int64_t end_ns) {
  const auto event = [&](std::string_view name, std::int64_t begin, std::int64_t end) {
    std::string head = R"({"ph":"X","name":")" + std::string(name) + R"(","ts":)";
    append_us(head, at(begin) - timeline_.origin_ns_);
    head += R"(,"dur":)";
    append_us(head, std::max<std::int64_t>(0, end - begin));
    return head;
  };
  heads_op_ = op;
  heads_ = {event(op_name(op), batch.begin_ns, end_ns)};
  for (const Span& span : batch.phases)
    heads_.push_back(event(phase_name(span.phase, op), span.begin_ns, span.end_ns < 0 ? end_ns : span.end_ns));
}

void ChromeRank::operation(std::size_t index, const Batch& batch, std::int64_t end_ns) {
  std::string& out = timeline_.text_;
  if (heads_.empty() || heads_op_ != row(index).op) make_heads(batch, row(index).op, end_ns);
  if (batch.shown) {
    out += R"({"ph":"E")";
    timeline_.append_time(R"(,"ts":)", at(end_ns));
  } else {
    out += heads_[0];
  }
  out += texts_[index].arguments;
  timeline_.end_event();
  for (std::size_t i = 1; i < heads_.size(); ++i) {
    out += heads_[i];
    out += texts_[index].tail;
    timeline_.end_event();
  }
}

void ChromeRank::on_cycle(std::int64_t ns) {
  name_row_zero();
  begin_event('i', "CYCLE_START", ns);
  timeline_.text_ += R"(,"s":"t")" + place(number_, 0) + "},\n";
  timeline_.end_event();
}

void ChromeRank::lost(std::uint64_t in_all) {
  timeline_.text_ += R"({"ph":"M","name":"hvd_lost","pid":)" + std::to_string(number_) + R"(,"args":{"records":)" +
                     std::to_string(in_all) + "}},\n";
  timeline_.end_event();
}

}  // namespace hvd::trace

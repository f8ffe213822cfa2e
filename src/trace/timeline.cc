#include "trace/timeline.h"

#include "base/json_text.h"
#include "trace/chrome_rank.h"
#include "trace/perfetto_rank.h"

namespace hvd::trace {

namespace {

constexpr std::int64_t pending_shown_after_ns = 1'000'000'000;
constexpr std::size_t flush_bytes = 64u << 10;
constexpr std::size_t max_rows_bytes = 256u << 20;  ///< names of all rows; further tensors share row 0
constexpr std::size_t max_described_bytes = 16u << 20;

}  // namespace

TimelineFormat format_of(std::string_view path) {
  if (path.ends_with(gzip_ending)) path.remove_suffix(gzip_ending.size());
  return path.ends_with(".pftrace") || path.ends_with(".perfetto-trace") ? TimelineFormat::perfetto
                                                                         : TimelineFormat::chrome;
}

Timeline::Timeline(std::int64_t origin_ns, Emit emit, TimelineFormat format)
    : origin_ns_(origin_ns), emit_(std::move(emit)) {
  if (format == TimelineFormat::perfetto) perfetto_ = std::make_unique<PerfettoWaits>(text_, origin_ns);
}
Timeline::~Timeline() = default;

Timeline::Rank& Timeline::rank(int number) {
  std::unique_ptr<Rank>& slot = ranks_[number];
  if (!slot && perfetto_)
    slot = std::make_unique<PerfettoRank>(*this, number, *perfetto_);
  else if (!slot)
    slot = std::make_unique<ChromeRank>(*this, number);
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

void Timeline::end_event() {
  ++events_;
  if (text_.size() >= repeated_bytes_ + flush_bytes) flush();
}

void Timeline::describe(std::string_view line) {
  if (described_.size() + line.size() <= max_described_bytes) described_ += line;
  text_ += line;
  end_event();
}

void Timeline::note(std::string_view line) {
  if (!perfetto_) return describe(std::string(line) + ",\n");
  if (described_.size() + line.size() <= max_described_bytes) (described_ += line) += '\n';
  perfetto_->packets.note(line);
  end_event();
}

void Timeline::flush() {
  const bool good = text_.empty() || emit_(text_);
  text_.clear();
  if (!good) begin_again();
  repeated_bytes_ = text_.size();
}

/// Writes names and tracks again: later events must not refer to earlier events.
void Timeline::begin_again() {
  if (!perfetto_) {
    text_ += described_;
    return;
  }
  perfetto_->packets.restart();
  std::string_view notes = described_;
  for (std::size_t end = 0; (end = notes.find('\n')) != notes.npos; notes.remove_prefix(end + 1))
    perfetto_->packets.note(notes.substr(0, end));
}

void Timeline::name_rank(int number, std::string_view host) { rank(number).name(host); }
void Timeline::set_clock(int number, const TraceClock& clock) { rank(number).set_clock(clock); }

bool Timeline::feed(int number, std::span<const std::uint8_t> body) { return rank(number).decoder().feed(body); }

std::string Timeline::why(int number) const {
  const auto found = ranks_.find(number);
  return found == ranks_.end() ? std::string{} : found->second->decoder().error();
}

void Timeline::mark(int number, std::string_view text, std::int64_t now_ns) { rank(number).mark(text, now_ns); }

void Timeline::event(int number, std::string_view name, std::int64_t ns, std::string_view arguments) {
  rank(number).mark(name, ns, arguments);
}

void Timeline::show_pending(std::int64_t now_ns) {
  for (const auto& [number, rank] : ranks_)
    rank->show_pending(now_ns == INT64_MAX ? now_ns : now_ns - pending_shown_after_ns);
  if (perfetto_) perfetto_->write_known(now_ns == INT64_MAX ? now_ns : now_ns - pending_shown_after_ns);
}

void Timeline::rank_ended(int number, std::string_view text, std::int64_t now_ns) {
  rank(number).show_pending(INT64_MAX);
  if (!text.empty()) rank(number).mark(text, now_ns);
}

void Timeline::stage(int number, std::string_view name, std::int64_t begin_ns, std::int64_t end_ns) {
  rank(number).stage(name, begin_ns, end_ns);
}

void Timeline::show_all() {
  show_pending(INT64_MAX);
  flush();
}

std::string_view Timeline::opening(TimelineFormat format) { return format == TimelineFormat::chrome ? "[\n" : ""; }

std::string Timeline::ending(std::string_view text, TimelineFormat format) {
  std::string line = R"({"ph":"M","name":"hvd_end","pid":0,"args":{"text":)";
  append_json_string(line, text);
  line += "}}";
  if (format == TimelineFormat::chrome) return line + "\n]\n";
  return packet_of(line);
}

std::string Timeline::packet_of(std::string_view line) {
  std::string packet;
  PerfettoPackets(packet).note(line);
  return packet;
}

}  // namespace hvd::trace

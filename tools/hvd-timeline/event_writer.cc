#include "event_writer.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/files/own_file.h"
#include "base/format.h"
#include "trace/trace_names.h"

namespace hvd::timeline {

namespace {

constexpr std::size_t flush_bytes = 64u << 10;

Fd create(const std::string& path) {
  try {
    return open_own_file(path, WriteMode::truncate, 0666);
  } catch (const Error& e) { throw Error(Code::usage, "-o", std::string("cannot write ") + e.what(), e.hint); }
}

std::int64_t perfetto_ns(double us) { return std::llround(us * 1000) + trace::perfetto_zero_ns; }

bool is_mark(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string text_argument(std::string_view arguments, const char* key) {
  simdjson::ondemand::parser parser;
  const simdjson::padded_string text(arguments);
  simdjson::ondemand::document document;
  std::string_view value;
  if (arguments.empty() || parser.iterate(text).get(document) || document[key].get_string().get(value)) return {};
  return std::string(value);
}

EventWriter::EventWriter(const std::string& path)
    : path_(path),
      format_(trace::format_of(path)),
      opened_(create(path)),
      gzip_(path.ends_with(trace::gzip_ending) ? std::make_unique<GzipMembers>() : nullptr),
      to_(formatted("/proc/self/fd/{}", opened_.get()), std::ios::binary | std::ios::app) {
  text_ = trace::Timeline::opening(format_);
}

void EventWriter::flush() {
  to_ << (gzip_ ? gzip_->member(text_) : std::string_view(text_));
  text_.clear();
}

void EventWriter::put_note(std::string_view line) {
  if (format_ == trace::TimelineFormat::perfetto) return packets_.note(line);
  (text_ += line) += ",\n";
}

EventWriter::RankTracks& EventWriter::rank(std::int64_t number) {
  RankTracks& tracks = ranks_[number];
  if (tracks.own == 0) {
    const auto order = static_cast<std::int32_t>(number);
    tracks.own = packets_.add_track(0, formatted("rank {}", number), order);
    tracks.tensors = packets_.add_track(tracks.own, "tensors", 2);
  }
  return tracks;
}

void EventWriter::name(const TimelineEvent& event) {
  if (event.name == "process_name") return packets_.rename(rank(event.pid).own, text_argument(event.arguments, "name"));
  if (event.name == "thread_name") {
    if (event.tid != 0) tensors_[{event.pid, event.tid}].name = text_argument(event.arguments, "name");
  } else if (event.name.starts_with("hvd_")) {
    packets_.note(event.line);
  }
}

void EventWriter::draw(std::uint64_t track, const HeldEvent& event, std::uint64_t flow) {
  const std::int64_t ns = perfetto_ns(event.ts_us);
  if (event.phase == 'X' || event.phase == 'B') packets_.begin(track, event.name, ns, flow);
  if (event.phase == 'X') packets_.end(track, std::max(ns, perfetto_ns(event.ts_us + event.dur_us)));
  if (event.phase == 'E') packets_.end(track, ns);
  if (event.phase == 'i') packets_.instant(track, event.name, ns);
}

void EventWriter::describe(const Place& place, TensorTrack& tensor, const std::string& look) {
  const auto order = static_cast<std::int32_t>(place.second);
  tensor.track = packets_.add_track(rank(place.first).tensors, tensor.name + look, order);
  for (const HeldEvent& held : tensor.held) draw_tensor(place, tensor, held);
  tensor.held = {};
}

void EventWriter::draw_tensor(const Place&, TensorTrack& tensor, const HeldEvent& event) {
  std::uint64_t flow = 0;
  const bool begins = event.phase == 'X' || event.phase == 'B';
  const std::uint64_t number = std::hash<std::string>{}(tensor.name) | 1;
  if (begins && event.name.starts_with("NEGOTIATE_")) flow = number + tensor.negotiations++;
  if (begins && trace::is_operation(event.name)) flow = number + tensor.operations++;
  draw(tensor.track, event, flow);
}

void EventWriter::put(const TimelineEvent& event, std::string_view line, bool drawn) {
  if (text_.size() >= flush_bytes) flush();
  if (format_ == trace::TimelineFormat::chrome) {
    (text_ += line) += ",\n";
    return;
  }
  if (event.phase == 'M') return name(event);
  if (event.phase == 'i' && is_mark(event.name)) return;  // the begin of a negotiation has the same information
  HeldEvent held{event.phase, std::string(event.name), event.ts_us, event.dur_us};
  RankTracks& own = rank(event.pid);
  if (event.tid == 0) return draw(own.own, held);
  const Place place{event.pid, event.tid};
  TensorTrack& tensor = tensors_[place];
  const bool operation = trace::is_operation(event.name);
  if (operation && !std::exchange(begun_, true)) packets_.shown_from(perfetto_ns(event.ts_us));
  if (operation && !drawn && event.phase == 'X' && event.ts_us >= own.free_us) {
    std::string lower = held.name;
    for (char& c : lower) c = static_cast<char>(std::tolower(c));
    draw(own.own, {'X', lower, event.ts_us, event.dur_us});
    own.free_us = event.ts_us + event.dur_us;
  }
  const std::string dtype = text_argument(event.arguments, "dtype");
  if (tensor.track == 0 && !dtype.empty())
    describe(place, tensor, "  " + dtype + " " + text_argument(event.arguments, "shape"));
  if (tensor.track != 0) return draw_tensor(place, tensor, held);
  tensor.held.push_back(std::move(held));
}

void EventWriter::close(std::string_view text) {
  for (auto& [place, tensor] : tensors_)
    if (!tensor.held.empty()) describe(place, tensor, "");
  text_ += trace::Timeline::ending(text, format_);
  flush();
  to_.close();
  if (!to_) throw Error(Code::unavailable, path_, "could not be written whole", "is the disk full?");
}

}  // namespace hvd::timeline

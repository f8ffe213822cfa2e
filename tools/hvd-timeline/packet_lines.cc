#include "packet_lines.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/format.h"
#include "base/json_text.h"
#include "trace/perfetto/perfetto_packets.h"
#include "trace/trace_names.h"

namespace hvd::timeline {

namespace {

constexpr std::uint64_t longest_packet = 1u << 20, latest_ns = std::uint64_t{1} << 62;

/// The fields of a message. A malformed field ends it.
class ProtoFields {
 public:
  explicit ProtoFields(std::string_view bytes) : bytes_(bytes) {}

  std::uint64_t field = 0, number = 0;
  std::string_view text;

  bool next() {
    const auto key = varint();
    if (!key) return false;
    field = *key >> 3;
    text = {};
    number = 0;
    std::uint64_t length = 0;
    switch (*key & 7) {
      case 0:
        if (const auto value = varint()) return number = *value, true;
        return false;
      case 1:
        length = 8;
        break;
      case 2:
        if (const auto value = varint())
          length = *value;
        else
          return false;
        break;
      case 5:
        length = 4;
        break;
      default:
        return false;
    }
    if (length > bytes_.size()) return false;
    text = bytes_.substr(0, length);
    bytes_.remove_prefix(length);
    return true;
  }

 private:
  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !bytes_.empty(); shift += 7) {
      const auto next = static_cast<std::uint8_t>(bytes_.front());
      bytes_.remove_prefix(1);
      value |= std::uint64_t{next & 0x7fu} << shift;
      if (next < 0x80) return value;
    }
    return {};
  }
  std::string_view bytes_;
};

}  // namespace

PacketLines::PacketLines(const std::string& path, std::uint64_t size)
    : path_(path), file_(path, std::ios::binary), size_(size) {}

/// Returns false where the file ends, within a packet or not.
bool PacketLines::read_packet(std::string& packet) {
  if (at_ >= size_) return false;
  const int tag = file_.get();
  if (tag == std::ifstream::traits_type::eof()) return false;
  std::uint64_t length = 0;
  unsigned shift = 0;
  std::uint64_t bytes = 1;
  for (int next = 0x80; next >= 0x80; shift += 7, ++bytes) {
    next = file_.get();
    if (next == std::ifstream::traits_type::eof()) return false;
    length |= std::uint64_t{static_cast<unsigned>(next) & 0x7fu} << shift;
    if (shift > 28) length = UINT64_MAX;
  }
  if (tag != trace::packet_tag || length > longest_packet)
    throw Error(Code::usage, path_, formatted("byte {} begins no packet of a timeline", at_));
  packet.resize(length);
  file_.read(packet.data(), static_cast<std::streamsize>(length));
  at_ += bytes + length;
  return static_cast<std::uint64_t>(file_.gcount()) == length;
}

bool PacketLines::next(std::string& line) {
  std::string packet;
  while (lines_.empty() && !ended_) {
    if (read_packet(packet))
      take(packet);
    else
      finish();
  }
  if (lines_.empty()) return false;
  line = std::move(lines_.front());
  lines_.pop_front();
  return true;
}

void PacketLines::take(std::string_view packet) {
  std::int64_t ns = 0;
  std::string_view event, names;
  for (ProtoFields of(packet); of.next();) {
    if (of.field == trace::packet_timestamp) ns = static_cast<std::int64_t>(std::min(of.number, latest_ns));
    if (of.field == trace::packet_event) event = of.text;
    if (of.field == trace::packet_interned) names = of.text;
    if (of.field == trace::packet_flags && (of.number & 1) != 0) names_.clear();
    if (of.field == trace::packet_track) take_track(of.text);
    if (of.field == trace::packet_note_field) {
      closed_ = closed_ || of.text.find(R"("name":"hvd_end")") != of.text.npos;
      lines_.emplace_back(of.text);
    }
  }
  take_names(names);
  if (!event.empty()) take_event(event, ns);
}

void PacketLines::take_names(std::string_view bytes) {
  for (ProtoFields of(bytes); of.next();) {
    if (of.field != trace::interned_names) continue;
    std::uint64_t number = 0;
    std::string_view name;
    for (ProtoFields entry(of.text); entry.next();) {
      if (entry.field == 1) number = entry.number;
      if (entry.field == 2) name = entry.text;
    }
    names_[number] = name;
  }
}

void PacketLines::take_track(std::string_view bytes) {
  std::uint64_t number = 0;
  PacketTrack track;
  for (ProtoFields of(bytes); of.next();) {
    if (of.field == trace::track_uuid) number = of.number;
    if (of.field == trace::track_name) track.name = of.text;
    if (of.field == trace::track_parent) track.parent = of.number;
    if (of.field == trace::track_counter) track.counter = true;
  }
  if (tracks_.contains(number) && tracks_[number].name == track.name) return;  // a repeated description
  if (track.parent == 0 && track.name.starts_with("rank ") && !track.name.ends_with(" steps")) {
    std::from_chars(track.name.data() + 5, track.name.data() + track.name.size(), track.rank);
    const std::string pid = std::to_string(track.rank);
    std::string line = R"({"ph":"M","name":"process_name","pid":)" + pid + R"(,"args":{"name":)";
    append_json_string(line, track.name);
    lines_.push_back(line + "}}");
    lines_.push_back(R"({"ph":"M","name":"thread_name","pid":)" + pid + R"(,"tid":0,"args":{"name":"runtime"}})");
  } else if (const auto parent = tracks_.find(track.parent); parent != tracks_.end()) {
    track.rank = parent->second.rank;
    if (parent->second.parent != 0) {  // below "tensors": NAME  DTYPE SHAPE
      const std::size_t end = track.name.rfind("  "),
                        space = end == track.name.npos ? end : track.name.find(' ', end + 2);
      const std::string name = track.name.substr(0, end);
      track.row = rows_.try_emplace(name, static_cast<std::int64_t>(rows_.size() + 1)).first->second;
      if (space != track.name.npos)
        track.arguments = R"(,"args":{"dtype":")" + track.name.substr(end + 2, space - end - 2) + R"(","shape":")" +
                          track.name.substr(space + 1) + R"("})";
      std::string line = R"({"ph":"M","name":"thread_name","pid":)" + std::to_string(track.rank) + R"(,"tid":)" +
                         std::to_string(track.row) + R"(,"args":{"name":)";
      append_json_string(line, name);
      lines_.push_back(line + "}}");
    }
  }
  track.open = std::move(tracks_[number].open);
  tracks_[number] = std::move(track);
}

void PacketLines::slice(const PacketTrack& track, char phase, std::string_view name, std::int64_t begin_ns,
                        std::int64_t end_ns) {
  std::string line =
      R"({"ph":")" + std::string(1, phase) + R"(",)" + (phase == 'i' ? R"("s":"t",)" : "") + R"("name":)";
  append_json_string(line, name);
  line += R"(,"ts":)";
  append_us(line, begin_ns - trace::perfetto_zero_ns);
  if (phase == 'X') {
    line += R"(,"dur":)";
    append_us(line, end_ns - begin_ns);
  }
  line += R"(,"pid":)" + std::to_string(track.rank) + R"(,"tid":)" + std::to_string(track.row);
  if (trace::is_operation(name)) line += track.arguments;
  lines_.push_back(line + "}");
}

/// Writes that a rank is ready, as Horovod's timelines do: an instant event in the row of the process set's first rank.
/// Assumes that this rank is rank 0.
void PacketLines::ready(const PacketTrack& track, std::int64_t ns) {
  PacketTrack home;
  home.rank = 0;
  home.row = track.row;
  slice(home, 'i', std::to_string(track.rank), ns, ns);
}

void PacketLines::take_event(std::string_view bytes, std::int64_t ns) {
  std::uint64_t type = 0, number = 0, name = 0;
  for (ProtoFields of(bytes); of.next();) {
    if (of.field == trace::event_type) type = of.number;
    if (of.field == trace::event_track) number = of.number;
    if (of.field == trace::event_name) name = of.number;
  }
  const auto found = tracks_.find(number);
  if (found == tracks_.end() || found->second.rank < 0 || found->second.counter) return;
  PacketTrack& track = found->second;
  if (type == trace::slice_begin) {
    track.open.emplace_back(names_[name], ns);
    // The other ranks learn from it when this rank was ready.
    if (names_[name].starts_with("NEGOTIATE_")) ready(track, ns);
  } else if (type == trace::slice_end && !track.open.empty()) {
    const auto [begun, begin_ns] = track.open.back();
    track.open.pop_back();
    slice(track, 'X', begun, begin_ns, ns);
  } else if (type == trace::instant_event) {
    slice(track, 'i', names_[name], ns, ns);
  }
}

/// A slice without an end was in progress when the file ended.
void PacketLines::finish() {
  ended_ = true;
  for (const auto& [number, track] : tracks_)
    for (const auto& [name, begin_ns] : track.open) slice(track, 'B', name, begin_ns, begin_ns);
}

}  // namespace hvd::timeline

#include "trace/perfetto/perfetto_packets.h"

#include <algorithm>
#include <utility>

namespace hvd::trace {

namespace {

constexpr std::size_t most_names = 1u << 16;  ///< at this number of names, numbering begins again

}  // namespace

void ProtoText::varint(std::uint64_t value) {
  while (value >= 0x80) {
    text_ += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  text_ += static_cast<char>(value);
}
void ProtoText::number(std::uint32_t field, std::uint64_t value) {
  varint(std::uint64_t{field} << 3);
  varint(value);
}
void ProtoText::fixed(std::uint32_t field, std::uint64_t value) {
  varint(std::uint64_t{field} << 3 | 1);
  for (int i = 0; i < 8; ++i) text_ += static_cast<char>(value >> (8 * i));
}
void ProtoText::bytes(std::uint32_t field, std::string_view value) {
  varint(std::uint64_t{field} << 3 | 2);
  varint(value.size());
  text_ += value;
}

std::uint64_t PerfettoPackets::add_track(std::uint64_t parent, std::string name, std::int32_t order) {
  tracks_.push_back({parent, std::move(name), false, Unit::none, order, false});
  return tracks_.size();
}

std::uint64_t PerfettoPackets::add_counter(std::uint64_t parent, std::string name, Unit unit, std::int32_t order) {
  tracks_.push_back({parent, std::move(name), true, unit, order, false});
  return tracks_.size();
}

void PerfettoPackets::rename(std::uint64_t track, std::string name) {
  tracks_[track - 1].name = std::move(name);
  tracks_[track - 1].described = false;
}

/// Appends the packet in body_ to to_, with its length, time and sequence.  @p ns  negative: no time
void PerfettoPackets::packet(std::int64_t ns, bool sequence) {
  if (ns >= 0) body_.number(packet_timestamp, static_cast<std::uint64_t>(ns));
  body_.number(packet_sequence, 1);
  if (sequence) body_.number(packet_flags, state_needed | (std::exchange(cleared_, false) ? state_cleared : 0));
  inner_.text().clear();
  inner_.varint(body_.text().size());
  to_ += packet_tag;
  to_ += inner_.text();
  to_ += body_.text();
  body_.text().clear();
}

void PerfettoPackets::describe(std::uint64_t number) {
  PerfettoTrack& track = tracks_[number - 1];
  if (track.described) return;
  track.described = true;
  if (track.parent != 0) describe(track.parent);
  ProtoText about, counter;
  about.number(track_uuid, number);
  about.bytes(track_name, track.name);
  if (track.parent != 0) about.number(track_parent, track.parent);
  if (track.counter) {
    if (track.unit != Unit::none) counter.number(counter_unit, static_cast<std::uint64_t>(track.unit));
    about.bytes(track_counter, counter.text());
  }
  about.number(track_ordering, explicit_order);
  about.number(track_order, static_cast<std::uint64_t>(static_cast<std::int64_t>(track.order)));
  body_.bytes(packet_track, about.text());
  packet(-1, false);
}

std::uint64_t PerfettoPackets::named(std::unordered_map<std::string, std::uint64_t>& names, std::string_view name,
                                     std::uint32_t field) {
  const auto [place, fresh] = names.try_emplace(std::string(name), names.size() + 1);
  if (fresh) {
    inner_.text().clear();
    inner_.number(1, place->second);
    inner_.bytes(2, name);
    interned_.bytes(field, inner_.text());
  }
  return place->second;
}

void PerfettoPackets::event(const PacketEvent& of, std::int64_t ns) {
  if (names_.size() >= most_names) names_.clear(), counts_.clear(), cleared_ = true;
  describe(of.track);
  event_.text().clear();
  interned_.text().clear();
  event_.number(event_type, of.type);
  event_.number(event_track, of.track);
  if (!of.name.empty()) event_.number(event_name, named(names_, of.name, interned_names));
  if (!of.what.empty()) {
    const std::uint64_t what = named(counts_, of.what, interned_annotations);
    inner_.text().clear();
    inner_.number(annotation_name, what);
    inner_.number(annotation_number, of.count);
    event_.bytes(event_annotation, inner_.text());
  }
  if (of.flow != 0) event_.fixed(event_flow, of.flow);
  if (of.type == counter_event) event_.number(event_value, static_cast<std::uint64_t>(of.value));
  if (!interned_.text().empty()) body_.bytes(packet_interned, interned_.text());
  body_.bytes(packet_event, event_.text());
  packet(std::max<std::int64_t>(0, ns), true);
}

void PerfettoPackets::begin(std::uint64_t track, std::string_view name, std::int64_t ns, std::uint64_t flow) {
  event({.type = slice_begin, .track = track, .name = name, .flow = flow}, ns);
}
void PerfettoPackets::begin_counted(std::uint64_t track, std::string_view name, std::int64_t ns, std::string_view what,
                                    std::uint64_t count) {
  event({.type = slice_begin, .track = track, .name = name, .what = what, .count = count}, ns);
}
void PerfettoPackets::end(std::uint64_t track, std::int64_t ns) { event({.type = slice_end, .track = track}, ns); }
void PerfettoPackets::instant(std::uint64_t track, std::string_view name, std::int64_t ns) {
  event({.type = instant_event, .track = track, .name = name}, ns);
}
void PerfettoPackets::counter(std::uint64_t track, std::int64_t value, std::int64_t ns) {
  event({.type = counter_event, .track = track, .value = value}, ns);
}

void PerfettoPackets::shown_from(std::int64_t ns) {
  ProtoText started;
  started.number(service_started, 1);
  body_.bytes(packet_service, started.text());
  packet(std::max<std::int64_t>(0, ns), false);
}

void PerfettoPackets::note(std::string_view json) {
  body_.bytes(packet_note_field, json);
  packet(-1, false);
}

void PerfettoPackets::restart() {
  for (PerfettoTrack& track : tracks_) track.described = false;
  names_.clear();
  counts_.clear();
  cleared_ = true;
}

}  // namespace hvd::trace

/// @file perfetto_packets.h — writes the part of Perfetto's trace format that timelines use: TracePackets with
/// TrackEvents.
///
/// A file is a sequence of packets.  Perfetto also reads a file that stops early.  A name is written once; later
/// packets hold its number.  A track is described at its first use.  If a packet is lost, the names and tracks in that
/// packet are lost too.  restart() then writes all names and tracks again.
///
/// Source of the field numbers: protos/perfetto/trace/trace_packet.proto and track_event/*.proto of
/// github.com/google/perfetto.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace hvd::trace {

/// First byte of a packet (field 1 of Trace, with a length).
inline constexpr char packet_tag = 0x0a;
/// Field of a packet that Perfetto ignores.  The field holds a line of Chrome JSON for hvd-timeline.
inline constexpr std::uint32_t packet_note_field = 7001;

/// Field numbers of TracePacket.
inline constexpr std::uint32_t packet_timestamp = 8, packet_sequence = 10, packet_event = 11, packet_interned = 12,
                               packet_flags = 13, packet_track = 60, packet_service = 69;
inline constexpr std::uint64_t state_cleared = 1, state_needed = 2;
// Field numbers of TrackEvent, the values of its type, field numbers of InternedData and DebugAnnotation.
inline constexpr std::uint32_t event_annotation = 4, event_type = 9, event_name = 10, event_track = 11,
                               event_value = 30, event_flow = 47;
inline constexpr std::uint8_t slice_begin = 1, slice_end = 2, instant_event = 3, counter_event = 4;
inline constexpr std::uint32_t interned_names = 2, interned_annotations = 3;
inline constexpr std::uint32_t annotation_name = 1, annotation_number = 3;
// Field numbers of TrackDescriptor, CounterDescriptor and TracingServiceEvent.
inline constexpr std::uint32_t track_uuid = 1, track_name = 2, track_parent = 5, track_counter = 8, track_ordering = 11,
                               track_order = 12;
inline constexpr std::uint64_t explicit_order = 3;
inline constexpr std::uint32_t counter_unit = 3, service_started = 2;

/// A timeline's zero in Perfetto's clock.  The offset keeps the times of earlier events positive.
inline constexpr std::int64_t perfetto_zero_ns = 1'000'000'000'000;

/// Appends fields of protobuf messages to a string.
class ProtoText {
 public:
  void varint(std::uint64_t value);
  void number(std::uint32_t field, std::uint64_t value);
  void fixed(std::uint32_t field, std::uint64_t value);
  void bytes(std::uint32_t field, std::string_view value);
  std::string& text() { return text_; }

 private:
  std::string text_;
};

/// Tracks are numbered from 1.  Times are nanoseconds of Perfetto's clock; a negative time is written as 0.
class PerfettoPackets {
 public:
  enum class Unit : std::uint8_t { none = 0, nanoseconds = 1, bytes = 3 };

  /// @param to  receives the packets at its end; must outlive this object
  explicit PerfettoPackets(std::string& to) : to_(to) {}

  /// Adds a track below @p parent (0: at the top) and returns its number.  Siblings are sorted by @p order.
  std::uint64_t add_track(std::uint64_t parent, std::string name, std::int32_t order);
  std::uint64_t add_counter(std::uint64_t parent, std::string name, Unit unit, std::int32_t order);
  void rename(std::uint64_t track, std::string name);

  /// Begins a slice of @p track.
  /// @param flow  Perfetto joins events with the same number by arrows, in the order of their times; 0: no arrows
  void begin(std::uint64_t track, std::string_view name, std::int64_t ns, std::uint64_t flow = 0);
  /// Like begin().  The slice also shows the number @p count, with the label @p what.
  void begin_counted(std::uint64_t track, std::string_view name, std::int64_t ns, std::string_view what,
                     std::uint64_t count);
  void end(std::uint64_t track, std::int64_t ns);
  void instant(std::uint64_t track, std::string_view name, std::int64_t ns);
  void counter(std::uint64_t track, std::int64_t value, std::int64_t ns);
  /// At first, Perfetto's page shows the events after @p ns.  The user scrolls left to earlier events.
  void shown_from(std::int64_t ns);
  /// Writes a line of JSON that only hvd-timeline reads.
  void note(std::string_view json);
  /// Called when a new file begins or packets were lost.  Later packets then do not refer to earlier packets.
  void restart();

 private:
  struct PerfettoTrack {
    std::uint64_t parent;
    std::string name;
    bool counter;
    Unit unit;
    std::int32_t order;
    bool described;
  };
  struct PacketEvent {
    std::uint8_t type;
    std::uint64_t track;
    std::string_view name{};
    std::uint64_t flow = 0;
    std::int64_t value = 0;
    std::string_view what{};
    std::uint64_t count = 0;
  };
  void describe(std::uint64_t track);
  void event(const PacketEvent& event, std::int64_t ns);
  std::uint64_t named(std::unordered_map<std::string, std::uint64_t>& names, std::string_view name,
                      std::uint32_t field);
  void packet(std::int64_t ns, bool sequence);

  std::string& to_;
  std::vector<PerfettoTrack> tracks_;
  std::unordered_map<std::string, std::uint64_t> names_, counts_;
  ProtoText body_, event_, interned_, inner_;
  bool cleared_ = true;
};

}  // namespace hvd::trace

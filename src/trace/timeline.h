/// @file timeline.h — turns the records of all ranks into a trace: Chrome's JSON, or Perfetto's packets.
///
/// A file is only appended to, and readable wherever it stops.  Timeline::opening() begins a file, ending() closes it.
/// An operation that has lasted for a second is written as begun and ended later: so a hang is visible.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trace/trace_decoder.h"

namespace hvd::trace {

/// The difference between a rank's clock and the timeline's.
struct TraceClock {
  std::int64_t offset_ns = 0;       ///< added to the rank's times
  std::int64_t uncertainty_ns = 0;  ///< ± around offset_ns
};

enum class TimelineFormat : std::uint8_t { chrome, perfetto };
/// By the ending: .pftrace and .perfetto-trace are Perfetto's, all others Chrome's.
TimelineFormat format_of(std::string_view path);
/// Behind the format's ending: the file is compressed.
inline constexpr std::string_view gzip_ending = ".gz";

class PerfettoWaits;

class Timeline {
 public:
  /// @param origin_ns  the timeline's zero, in its own clock
  /// @param emit       takes whole events; called with at most about 64 KiB more than one event's text.  False:
  /// something
  ///                   of it was left out, or a new file begins; names and tracks are written again
  using Emit = std::function<bool(std::string_view events)>;
  Timeline(std::int64_t origin_ns, Emit emit, TimelineFormat format = TimelineFormat::chrome);
  ~Timeline();

  static std::string_view opening(TimelineFormat format = TimelineFormat::chrome);
  /// The last event, with @p text, and the closing bytes of the file.
  static std::string ending(std::string_view text, TimelineFormat format = TimelineFormat::chrome);

  /// A line of JSON in Perfetto's format.
  static std::string packet_of(std::string_view line);

  /// Names a rank's row; @p host as the user wrote it.  A rank that was not named gets a row with its first record.
  void name_rank(int rank, std::string_view host);
  void set_clock(int rank, const TraceClock& clock);
  /// Takes the body of one frame.  False: it is malformed, and all further records of the rank are ignored; why() says
  /// why.
  bool feed(int rank, std::span<const std::uint8_t> body);
  std::string why(int rank) const;
  /// A mark in the rank's row 0, now_ns in the timeline's clock.
  void mark(int rank, std::string_view text, std::int64_t now_ns);
  /// Writes the beginning of operations that have lasted for a second; INT64_MAX: of all.  Call it about once a second.
  void show_pending(std::int64_t now_ns);
  /// The rank has ended: writes all that it has under way.
  void rank_ended(int rank, std::string_view text, std::int64_t now_ns);
  /// No more records will come: writes all that is under way, and flushes.
  void show_all();
  /// A part of the rank's start, in the timeline's clock.
  void stage(int rank, std::string_view name, std::int64_t begin_ns, std::int64_t end_ns);
  /// An event for programs: one JSON object.
  void note(std::string_view line);
  /// Passes all finished events to `emit`.
  void flush();

  std::uint64_t events() const { return events_; }
  std::uint64_t lost() const { return lost_; }

  class Rank;

 private:
  friend class Rank;
  friend class ChromeRank;
  friend class PerfettoRank;

  Rank& rank(int number);
  /// The row of a tensor: the same in all ranks.
  std::uint32_t row(const TraceTrack& track);
  void end_event();
  /// A line of Chrome's that a new file needs too.
  void describe(std::string_view line);
  void begin_again();
  void append_time(std::string_view key, std::int64_t ns);

  const std::int64_t origin_ns_;
  Emit emit_;
  std::string text_, described_;
  std::unique_ptr<PerfettoWaits> perfetto_;
  std::map<int, std::unique_ptr<Rank>> ranks_;
  std::unordered_map<std::string, std::uint32_t> rows_;
  std::size_t rows_bytes_ = 0;
  std::uint64_t events_ = 0, lost_ = 0;
};

}  // namespace hvd::trace

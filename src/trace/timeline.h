/// @file timeline.h — turns the records of all ranks into a trace: Chrome's JSON, or Perfetto's packets.
///
/// Events are only appended to a file, and a file that stops early can be read.  A file begins with Timeline::opening()
/// and ends with ending().  After an operation has lasted for a second, its beginning is written, and its end later.
/// So a hang is visible.
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
/// The format by the ending of @p path, also before .gz: Perfetto's for .pftrace and .perfetto-trace, else Chrome's.
TimelineFormat format_of(std::string_view path);
/// A path with this last ending names a compressed file.
inline constexpr std::string_view gzip_ending = ".gz";

class PerfettoWaits;

class Timeline {
 public:
  /// @param origin_ns  the timeline's zero, in its own clock
  /// @param emit  takes whole events: 64 KiB of text, and the event that passes this size.  Returns false if it dropped
  /// events, or if a new file begins.  The next call then repeats all names, at most 16 MiB more
  using Emit = std::function<bool(std::string_view events)>;
  Timeline(std::int64_t origin_ns, Emit emit, TimelineFormat format = TimelineFormat::chrome);
  ~Timeline();

  static std::string_view opening(TimelineFormat format = TimelineFormat::chrome);
  /// The last event, which holds @p text, and the closing bytes of the file.
  static std::string ending(std::string_view text, TimelineFormat format = TimelineFormat::chrome);

  /// The packet of Perfetto's format that holds a line of JSON.
  static std::string packet_of(std::string_view line);

  /// Names a rank; @p host as the user wrote it.  A rank without a name is added with its first record.
  void name_rank(int rank, std::string_view host);
  void set_clock(int rank, const TraceClock& clock);
  /// Takes the body of one trace frame.  False: this or an earlier body is malformed.  The rank's further records are
  /// then ignored, and why() gives the reason.
  bool feed(int rank, std::span<const std::uint8_t> body);
  std::string why(int rank) const;
  /// Writes a mark to the rank's row 0.  @p now_ns  in the timeline's clock
  void mark(int rank, std::string_view text, std::int64_t now_ns);
  /// Writes a moment to the rank's row 0.  @p arguments: one JSON object; in Perfetto's format it follows the name
  void event(int rank, std::string_view name, std::int64_t ns, std::string_view arguments);
  /// Writes the beginnings of operations that have lasted for a second.  Call it about once a second.
  /// @param now_ns  INT64_MAX: also of operations that began later
  void show_pending(std::int64_t now_ns);
  /// Called when the rank has ended.  Writes its operations under way, and the mark @p text unless it is empty.
  void rank_ended(int rank, std::string_view text, std::int64_t now_ns);
  /// Called when no more records will come.  Writes the operations under way, and flushes.
  void show_all();
  /// Adds a part of the rank's start.  Times are in the timeline's clock.  Chrome's format leaves the part out.
  void stage(int rank, std::string_view name, std::int64_t begin_ns, std::int64_t end_ns);
  /// Writes an event for programs.  @p line  one JSON object
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
  /// The number of a tensor's row, which is the same in all ranks.  0: the rows have too many names already.
  std::uint32_t row(const TraceTrack& track);
  void end_event();
  /// Writes a line of Chrome JSON, and keeps it for the next file.
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
  std::size_t repeated_bytes_ = 0;  ///< of text_: names that begin_again() has written
  std::uint64_t events_ = 0, lost_ = 0;
};

}  // namespace hvd::trace

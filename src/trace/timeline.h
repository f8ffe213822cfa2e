/// @file timeline.h — turns the records of all ranks into Chrome trace events.
///
/// In the trace a process is a rank, and a thread is a tensor; thread 0 holds the events that belong to no tensor. Each
/// event is one line that ends in ",\n", so a file is readable wherever it stops.  Timeline::opening() begins a file,
/// ending() closes it.  A finished operation is a complete event (ph X).  An operation that has lasted for a second is
/// written as begun (ph B) and ended later: so a hang is visible.
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

class Timeline {
 public:
  /// @param origin_ns  the timeline's zero, in its own clock
  /// @param emit       takes whole lines; called with at most about 64 KiB more than one event's text
  using Emit = std::function<void(std::string_view lines)>;
  Timeline(std::int64_t origin_ns, Emit emit);
  ~Timeline();

  static std::string_view opening() { return "[\n"; }
  /// The last line, with @p text, and the closing bracket.
  static std::string ending(std::string_view text);

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
  /// Passes all finished lines to `emit`.
  void flush();

  std::uint64_t events() const { return events_; }
  std::uint64_t lost() const { return lost_; }

 private:
  class Rank;
  friend class Rank;

  Rank& rank(int number);
  /// The row of a tensor: the same in all ranks.
  std::uint32_t row(const TraceTrack& track);
  void end_line();
  void append_time(std::string_view key, std::int64_t ns);

  const std::int64_t origin_ns_;
  Emit emit_;
  std::string text_;
  std::map<int, std::unique_ptr<Rank>> ranks_;
  std::unordered_map<std::string, std::uint32_t> rows_;
  std::size_t rows_bytes_ = 0;
  std::uint64_t events_ = 0, lost_ = 0;
};

}  // namespace hvd::trace

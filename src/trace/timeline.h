/// @file timeline.h — records of all ranks in, Chrome trace events out.
///
/// A process of the trace is a rank, a thread of it a tensor; thread 0 holds what belongs to no tensor.  One event a
/// line, each ending in ",\n", so that a file of them is readable wherever it stops: Timeline::opening() starts it and
/// ending() closes it.  Finished operations are complete events (ph X); what is under way for longer than a second is
/// written as begun (ph B) and ended later, so that a hang can be seen.
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

/// How a rank's clock is turned into the timeline's.
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

  /// A process row; @p host as the user knows it.  Ranks appear by themselves when not named before.
  void name_rank(int rank, std::string_view host);
  void set_clock(int rank, const TraceClock& clock);
  /// One frame body.  False: malformed, the rank's further records are ignored; why() says it.
  bool feed(int rank, std::span<const std::uint8_t> body);
  std::string why(int rank) const;
  /// A mark in the rank's row 0, now_ns in the timeline's clock.
  void mark(int rank, std::string_view text, std::int64_t now_ns);
  /// Shows what has been under way for longer than a second; INT64_MAX: everything.  Call it about once a second.
  void show_pending(std::int64_t now_ns);
  /// Shows everything that rank has under way: it has ended.
  void rank_ended(int rank, std::string_view text, std::int64_t now_ns);
  /// Shows and hands out everything under way: nothing comes any more.
  void show_all();
  /// Hands out what was rendered so far.
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

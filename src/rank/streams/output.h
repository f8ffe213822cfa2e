/// @file output.h — one output stream of the rank, on its way to hvdrun.
///
/// Bytes pass as they come, with one exception: a Python traceback on stderr is held for a moment.  If the rank dies of
/// the exception, the traceback goes into the death record. hvdrun then prints the traceback once, at the end.  If the
/// rank lives on, the traceback is passed on in its place.  torch.distributed writes "[rank3]: " in front of the lines
/// of a traceback: the record has them without it.  Pure: time is an argument, nothing is read or written here.
#pragma once
#include <chrono>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::rank {

using Clock = std::chrono::steady_clock;

/// The last lines of both streams, for the death record.
class Tail {
 public:
  static constexpr std::size_t most_lines = 20;
  static constexpr std::size_t most_line_bytes = 500;
  void add(std::string_view line);
  std::vector<std::string> lines() const { return {lines_.begin(), lines_.end()}; }

 private:
  std::deque<std::string> lines_;
};

class Output {
 public:
  static constexpr std::size_t most_held_bytes = 128u << 10;
  /// Python may need seconds to end after its last traceback; a rank that prints more lives on.
  static constexpr auto longest_hold = std::chrono::milliseconds(10000);
  static constexpr auto hold_when_it_goes_on = std::chrono::milliseconds(2000);

  /// @p tail is shared by both streams and outlives this.  @p hold: look for tracebacks (stderr).
  Output(Tail& tail, bool hold) : tail_(tail), hold_(hold) {}

  /// Takes bytes that were read; returns the bytes to pass on now.
  std::string take(std::string_view bytes, Clock::time_point now);
  /// Returns the bytes that were held for too long at @p now.
  std::string expire(Clock::time_point now);
  /// A traceback has begun and is not passed on yet.
  bool holds_traceback() const { return in_traceback_; }
  /// The time at which to call expire(); time_point::max() when nothing is held.
  Clock::time_point deadline() const;
  /// The stream has ended.  Returns the held traceback and the text after it, "" when none is held.  Other bytes that
  /// are still held go to *rest, to be passed on as usual.
  std::string finish(std::string* rest);
  /// The last traceback, if it was passed on before the rank died; else "".
  const std::string& shown_traceback() const { return shown_; }
  /// The last line after @p since that may explain the end.  Warnings, progress bars and indented lines do not count.
  /// "": there is none.
  /// sys.exit("text") and a SyntaxError end with this line, without a traceback.
  std::string last_line(Clock::time_point since) const { return last_line_at_ > since ? last_line_ : ""; }

 private:
  void end_of_line(Clock::time_point now);
  void note_line(Clock::time_point now);
  std::string release();

  Tail& tail_;
  bool hold_;
  std::string line_;   ///< the line under way
  std::string held_;   ///< from the first byte held
  std::string shown_;  ///< the last traceback that was released
  bool in_traceback_ = false;
  bool goes_on_ = false;   ///< more came well after the traceback
  bool chained_ = false;   ///< the line before announced another traceback of the same chain
  bool survived_ = false;  ///< the line before says that the next traceback ended a thread, or was ignored
  Clock::time_point since_{};
  std::string last_line_;
  Clock::time_point last_line_at_{}, taken_at_{};
};

}  // namespace hvd::rank

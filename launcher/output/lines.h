/// @file lines.h — cuts a byte stream into whole lines.  Pure.
#pragma once
#include <chrono>
#include <functional>
#include <string>
#include <string_view>

namespace hvd::launcher {

/// One stream of one rank.  '\n' and "\r\n" end a line.  '\r' alone ends one state of a progress bar.  At most one
/// state a second is passed on, and the last state of a line always.  If the caller draws the unended line
/// (live_area.h), only the last state is passed on.
class Lines {
 public:
  using Clock = std::chrono::steady_clock;
  using Take = std::function<void(std::string_view line)>;  ///< without its line end

  static constexpr std::size_t most_line_bytes = 64u << 10;  ///< a longer line is passed on in pieces
  static constexpr auto progress_interval = std::chrono::seconds(1);

  void add(std::string_view bytes, Clock::time_point now, const Take& take);
  /// The stream has ended: an unended line is passed on.
  void end(const Take& take);
  /// From now on the caller draws progress bars, from unended().
  void draw_in_place() { in_place_ = true; }
  /// The beginning of a line that has not ended yet.
  std::string_view unended() const { return line_.empty() ? skipped_ : line_; }
  /// True when a line was passed on in pieces.
  bool was_cut() const { return was_cut_; }

 private:
  void progress(Clock::time_point now, const Take& take);

  std::string line_;
  std::string skipped_;        ///< the newest state that was not passed on
  bool after_return_ = false;  ///< '\r' was the last byte: "\r\n" or a progress bar
  bool in_place_ = false, was_cut_ = false;
  Clock::time_point last_progress_{};
};

}  // namespace hvd::launcher

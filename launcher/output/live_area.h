/// @file live_area.h — on a terminal: what ranks show without ending the line (progress bars, prompts), a row each
/// below all other output, redrawn in place.
#pragma once
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace hvd::launcher {

/// @p text as one row of at most @p columns: no control characters, no escapes; UTF-8 is cut between characters.
std::string row_text(std::string_view text, std::size_t columns);

/// Thread: the event loop's.  Whoever writes anything else to the terminal calls erase() first.
class LiveArea {
 public:
  using Clock = std::chrono::steady_clock;
  struct TerminalSize {
    std::size_t rows = 24, columns = 80;
  };
  static constexpr auto interval = std::chrono::milliseconds(100);  ///< between two drawings

  /// @param put   writes to the terminal
  /// @param size  of the terminal, now
  LiveArea(std::function<void(std::string_view)> put, std::function<TerminalSize()> size)
      : put_(std::move(put)), size_(std::move(size)) {}

  /// What @p rank shows; empty: nothing.  @p tag  as it is printed, escapes of its colour included.
  void set(int rank, const std::string& tag, std::string_view text);
  /// The rank that hears the keyboard: its row is the lowest, and the cursor stays behind it.
  void set_reader(int rank) { reader_ = rank; }
  /// The user has ended a line: what is on the screen scrolls away, and the prompt is answered.
  void line_was_typed();

  void erase();
  /// Draws where something has changed, and not too often.
  void draw(Clock::time_point now);

 private:
  struct LiveRow {
    std::string tag, text;
    bool answered = false;
  };
  std::string picture() const;

  std::function<void(std::string_view)> put_;
  std::function<TerminalSize()> size_;
  std::map<int, LiveRow> rows_;  ///< by rank
  int reader_ = -1;
  std::size_t drawn_ = 0;  ///< rows on the screen
  bool changed_ = false;
  Clock::time_point last_{};
};

}  // namespace hvd::launcher

/// @file live_area.h — the lowest rows of a terminal: one row for each rank with an unended line.
///
/// Unended lines are progress bars and prompts.  The rows are redrawn in place below all other output.
#pragma once
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace hvd::launcher {

/// Cuts @p text to one row of at most @p columns, without control characters and escapes, and between UTF-8 characters.
std::string row_text(std::string_view text, std::size_t columns);

/// Thread: the event loop's.  Call erase() before anything else is written to the terminal.
class LiveArea {
 public:
  using Clock = std::chrono::steady_clock;
  struct TerminalSize {
    std::size_t rows = 24, columns = 80;
  };
  static constexpr auto interval = std::chrono::milliseconds(100);  ///< between two drawings

  /// @param put   writes to the terminal
  /// @param size  returns the terminal's present size
  LiveArea(std::function<void(std::string_view)> put, std::function<TerminalSize()> size)
      : put_(std::move(put)), size_(std::move(size)) {}

  /// @param text  the unended line of @p rank; empty: none
  /// @param tag   with the escapes of its colour
  void set(int rank, const std::string& tag, std::string_view text);
  /// Names the rank that reads the keyboard.  The rank's row is the lowest, and the cursor stays at the row's end.
  void set_reader(int rank) { reader_ = rank; }
  /// The user has typed a line.  The rows on the screen have scrolled up, and the prompt is answered.
  void line_was_typed();

  void erase();
  /// Draws if something has changed and `interval` is over.
  void draw(Clock::time_point now);
  /// draw() has something to do, perhaps later.
  bool has_changed() const { return changed_; }

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

/// @file live_area.h — the lowest rows of a terminal: lines that ranks have not ended (progress bars, prompts), one row
/// for each rank, redrawn in place below all other output.
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

/// Thread: the event loop's.  Call erase() before anything else is written to the terminal.
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

  /// @param text  the unended line of @p rank; empty: none
  /// @param tag   as it is printed, escapes of its colour included
  void set(int rank, const std::string& tag, std::string_view text);
  /// The rank that reads the keyboard: its row is the lowest, and the cursor stays at the end of it.
  void set_reader(int rank) { reader_ = rank; }
  /// The user has typed a line: the rows on the screen scroll up, and the prompt counts as answered.
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

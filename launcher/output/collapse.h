/// @file collapse.h — equal lines of many ranks become one line.  Pure: time is an argument.
#pragma once
#include <chrono>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

/// Holds each line for a moment, because other ranks may print the same line.  The lines of each rank stay in order.
class Collapser {
 public:
  using Clock = std::chrono::steady_clock;
  /// @param ranks  the ranks that printed the line, sorted
  using Take = std::function<void(const std::vector<int>& ranks, int stream, const std::string& line)>;

  static constexpr auto longest_hold = std::chrono::milliseconds(150);
  static constexpr std::size_t most_held = 1000;

  explicit Collapser(int size) : size_(static_cast<std::size_t>(size)) {}

  void add(int rank, int stream, std::string_view line, Clock::time_point now, const Take& take);
  /// Passes on lines that were held for long enough; with @p all every line.
  void flush(Clock::time_point now, bool all, const Take& take);
  bool empty() const { return groups_.empty(); }

 private:
  struct LineGroup {
    std::string line;
    int stream;
    std::vector<int> ranks;
    Clock::time_point since;
  };
  std::size_t size_;
  std::deque<LineGroup> groups_;
};

}  // namespace hvd::launcher

/// @file collapse.h — lines that many ranks print alike become one.  Pure: time comes in as an argument.
#pragma once
#include <chrono>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

/// Holds each line for a moment in case other ranks print it too.  Each rank's lines stay in order.
class Collapser {
 public:
  using Clock = std::chrono::steady_clock;
  /// @param ranks  who printed it, sorted
  using Take = std::function<void(const std::vector<int>& ranks, int stream, const std::string& line)>;

  static constexpr auto longest_hold = std::chrono::milliseconds(150);
  static constexpr std::size_t most_held = 1000;

  explicit Collapser(int size) : size_(static_cast<std::size_t>(size)) {}

  void add(int rank, int stream, std::string_view line, Clock::time_point now, const Take& take);
  /// Lets go what has been held long enough; with @p all everything.
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

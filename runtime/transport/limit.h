/// @file limit.h — the time limit of the blocking helper functions.
#pragma once
#include <unistd.h>

#include <chrono>
#include <utility>

namespace hvd::transport {

/// A time limit for a loop that polls.  The loop calls pause() after each poll without a result.  The sleeps grow from
/// 0 to 500 microseconds.  Time in which this process was stopped does not count.
class Limit {
 public:
  explicit Limit(double seconds)
      : end_(last_ +
             std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds))) {}
  /// Returns false if the limit has passed.  Otherwise sleeps and returns true.
  bool pause() {
    const auto now = std::chrono::steady_clock::now(), before = std::exchange(last_, now);
    if (now - before > longest_between_calls) end_ += now - before;
    if (now > end_) return false;
    usleep(tries_ < 50 ? 0 : tries_ < 200 ? 50 : 500);
    ++tries_;
    return true;
  }

 private:
  static constexpr auto longest_between_calls = std::chrono::seconds(2);  ///< after more, this process was stopped
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now(), end_;
  int tries_ = 0;
};

}  // namespace hvd::transport

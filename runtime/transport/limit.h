/// @file limit.h — the time limit of the blocking helper functions.
#pragma once
#include <unistd.h>

#include <chrono>

namespace hvd::transport {

/// A time limit for a loop that polls.  The loop calls pause() after each poll without a result.  The sleeps grow from
/// 0 to 500 microseconds.
class Limit {
 public:
  explicit Limit(double seconds)
      : end_(std::chrono::steady_clock::now() +
             std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds))) {}
  /// Returns false if the limit has passed.  Otherwise sleeps and returns true.
  bool pause() {
    if (std::chrono::steady_clock::now() > end_) return false;
    usleep(tries_ < 50 ? 0 : tries_ < 200 ? 50 : 500);
    ++tries_;
    return true;
  }

 private:
  std::chrono::steady_clock::time_point end_;
  int tries_ = 0;
};

}  // namespace hvd::transport

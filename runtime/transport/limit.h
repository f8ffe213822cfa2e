/// @file limit.h — how long the blocking helpers wait.
#pragma once
#include <unistd.h>

#include <chrono>

namespace hvd::transport {

/// A limit, with sleeps that grow from a yield to half a millisecond.
class Limit {
 public:
  explicit Limit(double seconds)
      : end_(std::chrono::steady_clock::now() +
             std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds))) {}
  /// False when the time is over.
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

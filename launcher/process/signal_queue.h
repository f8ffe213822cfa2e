/// @file signal_queue.h — signals as events of the loop instead of interruptions.
#pragma once
#include <csignal>
#include <optional>

#include "base/file.h"

namespace hvd::launcher {

/// The signals that end a job.
inline constexpr int ending_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

/// True if @p number is one of ending_signals.
constexpr bool ends_job(int number) {
  for (const int one : ending_signals)
    if (one == number) return true;
  return false;
}

/// Blocks the signals that a job reacts to and reads them from a descriptor.  Construct it before any thread starts, so
/// that all threads inherit the mask.  SIGPIPE is ignored from then on.  SIGHUP stays ignored under nohup(1).
class SignalQueue {
 public:
  SignalQueue();
  int fd() const { return fd_.get(); }
  /// The next signal that arrived, or nothing.
  std::optional<int> next();

 private:
  Fd fd_;
};

}  // namespace hvd::launcher

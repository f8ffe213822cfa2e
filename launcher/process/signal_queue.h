/// @file signal_queue.h — signals as events of the loop instead of interruptions.
#pragma once
#include <optional>

#include "base/file.h"

namespace hvd::launcher {

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

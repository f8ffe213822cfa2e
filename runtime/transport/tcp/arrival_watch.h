/// @file arrival_watch.h — a thread that sleeps until something arrives.
#pragma once
#include <functional>
#include <thread>

#include "base/file.h"

namespace hvd::transport::tcp {

/// Sleeps on a descriptor while it is armed, and tells once for each time that it was armed.
class ArrivalWatch {
 public:
  /// @p arrived is called on a thread of this object when @p fd, armed, is readable.  Throws Error{unavailable}.
  ArrivalWatch(int fd, std::function<void()> arrived);
  ~ArrivalWatch() { stop(); }
  /// Waits for a call under way; there is none later.
  void stop();
  /// Any thread.  A system call and no wake-up.
  void arm(bool on);

 private:
  void run();

  const int fd_;
  const std::function<void()> arrived_;
  Fd epoll_, stop_;
  std::thread thread_;
};

}  // namespace hvd::transport::tcp

/// @file arrival_watch.h — a thread that sleeps until a descriptor is readable.
#pragma once
#include <functional>
#include <thread>

#include "base/file.h"

namespace hvd::transport::tcp {

/// Watches a descriptor while armed.  Calls a function at most once for each arm(true).
class ArrivalWatch {
 public:
  /// A thread of this object calls @p arrived when @p fd is readable and the watch is armed.  @p fd must stay open
  /// until stop().  Throws Error{unavailable}.
  ArrivalWatch(int fd, std::function<void()> arrived);
  ~ArrivalWatch() { stop(); }
  /// Ends the calls of `arrived`.  Waits until a running call returns.
  void stop();
  /// Any thread.  Makes one system call, and does not wake the thread of this object.
  void arm(bool on);

 private:
  void run();

  const int fd_;
  const std::function<void()> arrived_;
  Fd epoll_, stop_;
  std::thread thread_;
};

}  // namespace hvd::transport::tcp

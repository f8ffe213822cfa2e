/// @file arrival_watch.h — a thread that sleeps until a descriptor is readable.
#pragma once
#include <atomic>
#include <functional>
#include <thread>

#include "base/file.h"

namespace hvd::transport::tcp {

/// Watches a descriptor while armed.  Calls a function at most once for each arm(true) and each call_later().
class ArrivalWatch {
 public:
  /// A thread of this object calls @p arrived when @p fd is readable and the watch is armed.  @p fd must stay open
  /// until stop().  Throws Error{unavailable}.
  ArrivalWatch(int fd, std::function<void()> arrived);
  ~ArrivalWatch() { stop(); }
  /// Ends the calls of `arrived`.  Waits until a running call returns.
  void stop();
  /// Any thread.  Makes at most one system call, and does not wake the thread of this object.
  void arm(bool on);
  /// Causes a call of `arrived` after a millisecond.  Any thread.
  void call_later();

 private:
  void run();

  const int fd_;
  const std::function<void()> arrived_;
  Fd epoll_, stop_, timer_;
  std::atomic<bool> armed_{false};  ///< false: the watch does not need to be disarmed
  std::thread thread_;
};

}  // namespace hvd::transport::tcp

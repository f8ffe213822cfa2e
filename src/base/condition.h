/// @file condition.h — waiting on a condition variable without a time limit, also with the libstdc++ of GCC 11.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace hvd {

/// Like condition.wait(lock, is_true).  The symbol of wait() is from GCC 12 (GLIBCXX_3.4.30), and RHEL 9 lacks it.
/// wait_for() is compiled into the caller.
template <class Predicate>
void wait_for_truth(std::condition_variable& condition, std::unique_lock<std::mutex>& lock, Predicate is_true) {
  while (!condition.wait_for(lock, std::chrono::hours(24 * 365), is_true)) {}
}

}  // namespace hvd

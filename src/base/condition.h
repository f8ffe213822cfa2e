/// @file condition.h — waiting without an end, for libstdc++ of GCC 11 too.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace hvd {

/// As condition.wait(lock, is_true).  That one's symbol is GCC 12's (GLIBCXX_3.4.30), which RHEL 9 lacks; a wait with a
/// limit is compiled in.
template <class Predicate>
void wait_for_truth(std::condition_variable& condition, std::unique_lock<std::mutex>& lock, Predicate is_true) {
  while (!condition.wait_for(lock, std::chrono::hours(24 * 365), is_true)) {}
}

}  // namespace hvd

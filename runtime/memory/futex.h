/// @file futex.h — sleeping on a word in memory, which processes may share.
#pragma once
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace hvd::memory {

/// Sleeps while @p word equals @p expected, for @p limit_ns at most (negative: no limit).  May return early.
inline void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, std::int64_t limit_ns) {
  timespec limit{static_cast<time_t>(limit_ns / 1000000000), static_cast<long>(limit_ns % 1000000000)};
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, expected, limit_ns < 0 ? nullptr : &limit,
          nullptr, 0);
}

inline void futex_wake(std::atomic<std::uint32_t>& word, int count = INT_MAX) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, count, nullptr, nullptr, 0);
}

inline std::int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return std::int64_t{t.tv_sec} * 1000000000 + t.tv_nsec;
}

inline void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace hvd::memory

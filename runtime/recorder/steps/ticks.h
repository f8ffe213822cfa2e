/// @file ticks.h — the fastest clock that is equal on all cores.
///
/// On x86-64 the clock is the time-stamp counter, if the kernel uses the counter as its own clock.  A read takes half
/// as long as clock_gettime().  Otherwise the clock is CLOCK_MONOTONIC in nanoseconds.
#pragma once
#include <time.h>

#include <cstdint>
#include <fstream>
#include <string>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace hvd::trace {

inline std::int64_t monotonic_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// True if ticks() may read the time-stamp counter: the kernel uses it as its own clock.
inline bool counter_is_trusted() {
#if defined(__x86_64__)
  std::ifstream source("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::string name;
  return source >> name && name == "tsc";
#else
  return false;
#endif
}

/// @param use_counter  the result of counter_is_trusted().  False: the result is in ns
inline std::uint64_t ticks(bool use_counter) noexcept {
#if defined(__x86_64__)
  if (use_counter) return __rdtsc();
#endif
  (void)use_counter;
  return static_cast<std::uint64_t>(monotonic_ns());
}

/// The same moment in both clocks.
struct ClockPair {
  std::uint64_t ticks = 0;
  std::int64_t ns = 0;
};

/// Reads both clocks four times, and returns the pair with the shortest time between its reads.  A preemption may delay
/// some of them.
inline ClockPair read_clocks(bool use_counter) noexcept {
  ClockPair best;
  std::uint64_t width = ~0ull;
  for (int i = 0; i < 4; ++i) {
    const std::uint64_t before = ticks(use_counter);
    const std::int64_t ns = monotonic_ns();
    const std::uint64_t after = ticks(use_counter);
    if (after - before < width) {
      width = after - before;
      best = {use_counter ? before + width / 2 : static_cast<std::uint64_t>(ns), ns};
    }
  }
  return best;
}

}  // namespace hvd::trace

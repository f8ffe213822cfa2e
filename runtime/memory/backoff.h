/// @file backoff.h — how a thread waits for another rank: spin, then yield, then sleep.
///
/// A thread spins for about the time that a sleep and a wake-up cost.  The limits are measured
/// (docs/decisions/27-waiting.md).
#pragma once
#include <sched.h>

#include "memory/futex.h"

namespace hvd::memory {

class Backoff {
 public:
  /// @param spins  pauses before the first yield.  The pauses end after spins * pause_ns, which includes the caller's
  /// own checks between pauses (reads of sockets)
  explicit Backoff(int spins) : spins_(spins) {}
  /// For a caller that waits for an operation.  @p crowded: the node has more ranks than cores, so the awaited rank may
  /// need this core.  The spins are few: if the scheduler puts both ranks on one core, each exchange costs two of them.
  static Backoff of_caller(bool crowded) { return Backoff(crowded ? few : some); }
  /// For an engine's thread.  @p spare: the thread has a core beside the core of its rank's own thread.
  static Backoff of_engine(bool spare) { return Backoff(spare ? many : few); }

  void reset() { pauses_ = 0, since_ = 0; }
  /// The time of now_ns() at the first yield since reset(); 0: there was none.
  std::int64_t since_ns() const { return since_; }

  /// Spins or yields once.  Returns false from 1 ms after the first yield on: the caller should sleep.
  bool pause() {
    if (spin()) return true;
    const std::int64_t now = now_ns();
    if (since_ == 0) since_ = now;
    if (now - since_ > 1000000) return false;
    sched_yield();
    return true;
  }

  /// Spins once.  Returns false without a pause if the spins are used up.
  bool spin() {
    if (pauses_ >= spins_) return false;
    ++pauses_;
    if (pauses_ % looks == 0 && too_long()) pauses_ = spins_;
    cpu_relax();
    return true;
  }

 private:
  static constexpr int many = 2000, some = 500, few = 50;
  static constexpr int looks = 8;  ///< pauses between two reads of the clock
  static constexpr std::int64_t pause_ns = 35;

  bool too_long() {
    const std::int64_t now = now_ns();
    if (pauses_ == looks) spins_since_ = now;
    return now - spins_since_ > spins_ * pause_ns;
  }

  int spins_, pauses_ = 0;
  std::int64_t spins_since_ = 0, since_ = 0;
};

}  // namespace hvd::memory

/// @file backoff.h — how a thread passes the time while it waits for another rank.
///
/// Spin for about the price of a sleep and a wake-up, then yield, then give up
/// spinning altogether: measured, see docs/decisions/27-waiting.md.
#pragma once
#include <sched.h>

#include "memory/futex.h"

namespace hvd::memory {

class Backoff {
 public:
  /// @param spins  pauses before the first yield; fewer where what is looked at in between takes longer than a pause,
  /// such as sockets: they last for spins x pause_ns at the most.
  explicit Backoff(int spins) : spins_(spins) {}
  /// In a caller that waits.  @p crowded: more ranks than cores on this node; whoever we wait for may need our core.
  /// It yields long before it sleeps: where the scheduler has put both on one core, each exchange costs two such spins.
  static Backoff of_caller(bool crowded) { return Backoff(crowded ? few : some); }
  /// In an engine's thread.  @p spare: there is a core for it beside its rank's own thread.
  static Backoff of_engine(bool spare) { return Backoff(spare ? many : few); }

  void reset() { pauses_ = 0, since_ = 0; }
  /// When the spinning was over, by now_ns(); 0 while it is not.
  std::int64_t since_ns() const { return since_; }

  /// One pause.  False once about a millisecond has passed since reset(): time to sleep.
  bool pause() {
    if (spin()) return true;
    const std::int64_t now = now_ns();
    if (since_ == 0) since_ = now;
    if (now - since_ > 1000000) return false;
    sched_yield();
    return true;
  }

  /// Only the spinning part: false as soon as that is over.
  bool spin() {
    if (pauses_ >= spins_) return false;
    ++pauses_;
    if (pauses_ % looks == 0 && too_long()) pauses_ = spins_;
    cpu_relax();
    return true;
  }

 private:
  static constexpr int many = 2000, some = 500, few = 50;
  static constexpr int looks = 8;  ///< pauses from one look at the clock to the next
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

/// @file wake.h — one futex call per sleep, none while somebody polls.
///
/// A rank's engine is driven either by callers that wait (they count themselves
/// in `polling`) or by its own thread, which sleeps on `sleeping`.
///   waker    makes work visible (seq_cst), then looks at polling and sleeping, takes sleeping by exchange.
///   sleeper  sleeping = 1 (seq_cst), then looks for work once more, then futex_wait.
///   caller   polling - 1 (seq_cst), then looks for work once more, and if there is some rings its own engine.
/// Whoever comes second in the total order of these operations sees the other.
#pragma once
#include "memory/futex.h"
#include "memory/node.h"

namespace hvd::memory {

/// Rings even when somebody polls: for words that pollers do not look at.
inline void ring_always(Bell& bell) {
  if (bell.sleeping.load(std::memory_order_seq_cst) != 0 && bell.sleeping.exchange(0, std::memory_order_seq_cst) != 0)
    futex_wake(bell.sleeping, 1);
}

/// Whether ring() would wake somebody up now.  Once it would not, whoever looks later sees what was written before.
inline bool rings(const Bell& bell) {
  return bell.polling.load(std::memory_order_seq_cst) == 0 && bell.sleeping.load(std::memory_order_seq_cst) != 0;
}

inline void ring(Bell& bell) {
  if (bell.polling.load(std::memory_order_seq_cst) == 0) ring_always(bell);
}

}  // namespace hvd::memory

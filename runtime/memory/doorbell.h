/// @file doorbell.h — wakes the engine thread of a rank: one futex call per sleep, none while somebody polls.
///
/// A rank's engine is driven either by callers that wait (they count themselves in `polling`) or by its own thread,
/// which sleeps on `sleeping`.
///   waker    makes work visible (seq_cst), then looks at polling and sleeping, takes sleeping by exchange.
///   sleeper  sleeping = 1 (seq_cst), then looks for work once more, then futex_wait.
///   caller   polling - 1 (seq_cst), then looks for work once more, and if there is some rings its own doorbell.
/// Of a waker and a sleeper (or caller), the one that comes second in the total order of these operations sees the
/// other.  Model: tests/models/doorbell.pml.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "memory/futex.h"

namespace hvd::memory {

inline constexpr std::size_t line_bytes = 128;  ///< of what different ranks write: the neighbour line is fetched along

/// Lies in the shared memory of a node, one for each rank.
struct alignas(line_bytes) Doorbell {
  std::atomic<std::uint32_t> sleeping;  ///< futex word: 1 while the rank's engine thread sleeps; wakers take it
  std::atomic<std::uint32_t> polling;   ///< callers of this rank that drive the engine right now

  /// Wakes the engine thread if it sleeps, even when a caller polls: for words that pollers do not look at.
  void ring_always() {
    if (sleeping.load(std::memory_order_seq_cst) != 0 && sleeping.exchange(0, std::memory_order_seq_cst) != 0)
      futex_wake(sleeping, 1);
  }
  /// Wakes the engine thread if it sleeps and nobody polls.
  void ring() {
    if (polling.load(std::memory_order_seq_cst) == 0) ring_always();
  }
  /// Whether ring() would wake the engine thread now.  Once it would not, whoever looks for work later sees what was
  /// written before this call.
  bool would_wake() const {
    return polling.load(std::memory_order_seq_cst) == 0 && sleeping.load(std::memory_order_seq_cst) != 0;
  }
};

}  // namespace hvd::memory

/// @file doorbell.h — wakes the engine thread of a rank: one futex call per sleep, none while a caller polls.
///
/// Two kinds of thread drive a rank's engine.  Callers that wait are counted in `polling`.  The engine's own thread
/// sleeps on `sleeping`.
///   waker    makes work visible (seq_cst), reads `polling` and `sleeping`, then takes `sleeping` by exchange.
///   sleeper  sets sleeping = 1 (seq_cst), looks for work once more, then calls futex_wait.
///   caller   subtracts 1 from polling (seq_cst), looks for work once more, and then rings its own doorbell if needed.
/// All these operations have one total order.  So if a waker meets a sleeper or a caller, the later one sees the write
/// of the earlier one.  Model: tests/models/doorbell.pml.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "memory/futex.h"

namespace hvd::memory {

inline constexpr std::size_t line_bytes = 128;  ///< between words of different writers: CPUs fetch pairs of lines

/// Each rank has one, in the shared memory of its node.
struct alignas(line_bytes) Doorbell {
  std::atomic<std::uint32_t> sleeping;  ///< futex word: 1 while the rank's engine thread sleeps; a waker sets it to 0
  std::atomic<std::uint32_t> polling;   ///< number of this rank's callers that drive the engine now

  /// Wakes the engine thread if it sleeps, even while a caller polls.  For work that polling callers do not look for.
  void ring_always() {
    if (sleeping.load(std::memory_order_seq_cst) != 0 && sleeping.exchange(0, std::memory_order_seq_cst) != 0)
      futex_wake(sleeping, 1);
  }
  /// Wakes the engine thread if it sleeps and no caller polls.
  void ring() {
    if (polling.load(std::memory_order_seq_cst) == 0) ring_always();
  }
  /// True if ring() would wake the engine thread now.  If false, the thread that next looks for work sees all that was
  /// written before this call.
  bool would_wake() const {
    return polling.load(std::memory_order_seq_cst) == 0 && sleeping.load(std::memory_order_seq_cst) != 0;
  }
};

}  // namespace hvd::memory

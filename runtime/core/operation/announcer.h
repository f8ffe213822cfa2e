/// @file announcer.h — how a rank tells the leader of its node what it has submitted: ready bits and records.
///
/// An operation whose name has an id is announced by its ready bit: one store for up to 64 of them (begin(), then
/// flip()).  The bit is a parity: it flips once a round.  Any other operation is announced by a record, a message in
/// this rank's queue to the leader; what does not fit the queue waits here.
///
/// Under the mutex of the process set, but for waits().
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/operation/name_entry.h"
#include "core/operation/operation.h"
#include "memory/node.h"
#include "ops/shm/eager.h"

namespace hvd::core {

class Announcer {
 public:
  /// @p node  of the process set; attached, and outlives this.  @p fills: its slots; false: nobody else reads them.
  Announcer(const memory::Node& node, bool fills);

  /// The operation's part before its ready bit: a small tensor is copied to its slot; of a larger one the others learn
  /// where it lies.  flip() sets the bit.  Its entry has an id.
  void begin(NameEntry& e, Operation& op);
  /// Sets the bits of all that begin() was called for.  True when that makes some complete: all local ranks have set
  /// theirs.
  bool flip();
  /// Sets the bit back: the id is evicted.
  void take_back(std::uint32_t id);

  /// Sends a record; @p executed  commands that had been carried out when the operation was submitted.
  void record(std::uint64_t executed, const Signature& signature, std::string_view name);
  /// Sends what waits, as far as there is room.  True when something was sent.
  bool flush();
  /// Records wait for room.  Any thread.
  bool waits() const { return waits_.load(std::memory_order_acquire); }

 private:
  void tell_address(const NameEntry& e, const Operation& op);

  const memory::Node& node_;
  const bool fills_;
  ops::EagerSlots slots_;
  std::vector<std::uint64_t> flips_;  ///< [words] bits to set; zero but between begin() and flip()
  std::uint32_t words_ = 0;           ///< of flips_, in use
  std::string outbox_;                ///< records that did not fit the queue
  std::atomic<bool> waits_{false};    ///< outbox_ is not empty
};

}  // namespace hvd::core

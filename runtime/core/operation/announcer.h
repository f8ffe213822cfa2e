/// @file announcer.h — tells the leader of the node which operations this rank has submitted: ready bits and records.
///
/// If the operation's name has an id, a ready bit announces the operation.  One store sets up to 64 bits (begin(), then
/// flip()).  The bit is a parity: it flips once a round.  A record announces any other operation.  A record is a
/// message in this rank's queue to the leader.  Records that do not fit the queue wait in an outbox.
///
/// The caller holds the mutex of the process set, except for waits().
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
  /// @p node: of the process set, attached; must outlive this object.  @p fills: whether other ranks read this rank's
  /// slots, so that begin() must fill them.
  Announcer(const memory::Node& node, bool fills);

  /// Prepares @p op.  The entry @p e of its name has an id.  Copies a small tensor to its slot, or tells the other
  /// ranks the address of a larger one.  flip() then sets the ready bit.
  void begin(NameEntry& e, Operation& op);
  /// Sets the ready bits of all operations since the last flip().  True if, for at least one of them, all local ranks
  /// have now set the bit.
  bool flip();
  /// Clears the ready bit of an evicted id.
  void take_back(std::uint32_t id);

  /// Sends a record.  @p executed: how many commands had been carried out when the operation was submitted.
  void record(std::uint64_t executed, const Signature& signature, std::string_view name);
  /// Sends records of the outbox while the queue has room.  True when one was sent.
  bool flush();
  /// True while the outbox holds records.  Any thread.
  bool waits() const { return waits_.load(std::memory_order_acquire); }

 private:
  void tell_address(const NameEntry& e, const Operation& op);

  const memory::Node& node_;
  const bool fills_;
  ops::EagerSlots slots_;
  std::vector<std::uint64_t> flips_;  ///< [words] bits to set; zero but between begin() and flip()
  std::vector<std::uint32_t> words_;  ///< of flips_, in use
  std::string outbox_;                ///< records that did not fit the queue
  std::atomic<bool> waits_{false};    ///< outbox_ is not empty
};

}  // namespace hvd::core

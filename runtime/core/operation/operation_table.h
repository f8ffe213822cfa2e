/// @file operation_table.h — the operations of an engine, and their handles.
///
/// Operations are used again, and freed with the table.  A handle is an index and a generation, so a stale one is
/// recognised.  Thread-safe, by one lock that is held for some instructions a call: what frees memory or calls others
/// runs without it.
///
/// The handle holds an operation, and so does each call that uses it.  An operation that has ended and is held by
/// nobody is recycled.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <vector>

#include "core/operation/operation.h"
#include "core/status/rank_status.h"

namespace hvd::core {

class OperationTable {
 public:
  explicit OperationTable(RankStatus& status);
  OperationTable(const OperationTable&) = delete;
  OperationTable& operator=(const OperationTable&) = delete;
  ~OperationTable();

  /// ops: [count], filled.
  void take(std::size_t count, Operation** ops);
  /// How many there are, in use or not.
  std::size_t made() const;
  static std::int64_t handle(const Operation& op) {
    return static_cast<std::int64_t>(op.generation.load(std::memory_order_relaxed)) << 32 | (op.index + 1);
  }
  /// One more hold, to be let go; nullptr when the handle was never given out or has been released.
  Operation* hold(std::int64_t handle);
  /// One hold ends.
  void let_go(Operation& op);
  /// The handle's hold ends: it is stale from now on.
  void release(Operation& op) { release(handle(op)); }
  /// The same; false when it was stale before, as for all but one of several threads that do this at once.
  bool release(std::int64_t handle) { return release({&handle, 1}) == 1; }
  /// All of them, those that are good at least.  How many were.
  std::size_t release(std::span<const std::int64_t> handles);
  /// The result of an operation that has ended, now the caller's; nullptr for all callers but one.
  static void* take_result(Operation& op) { return std::atomic_ref(op.result).exchange(nullptr); }
  /// It has been given out, and not released yet.
  bool valid(std::int64_t handle) const;
  /// The handle's operation has ended, and well.  False also for a handle that means nothing.
  bool ended_well(std::int64_t handle) const { return ended_well({&handle, 1}) == 1; }
  /// How many of @p handles have, before the first that has not.
  std::size_t ended_well(std::span<const std::int64_t> handles) const;

  /// False when somebody listens already.  Calls @p tell itself when the operation has ended.  While held.
  bool listen(Operation& op, void (*tell)(void*), void* context);
  /// listen() has been called.
  bool has_notified() const { return has_notified_.load(std::memory_order_relaxed); }
  /// Sleeps until the operation has ended, at most @p limit_ns.  While held.
  void sleep(Operation& op, std::int64_t limit_ns);

  /// The operations have ended; what came of them has been written.  Drive side.
  void end(std::span<Operation* const> ops);

 private:
  Operation* at_handle(std::int64_t handle) const;
  bool unused(const Operation& op) const { return op.holders == 0 && op.done(); }
  void recycle(std::span<Operation* const> ops);

  const std::uint32_t table_;  ///< its number in the process
  RankStatus& status_;
  std::atomic<bool> has_notified_{false};
  mutable std::mutex mutex_;           ///< of all below, and of an operation's generation, holders and listener
  mutable std::deque<Operation> all_;  ///< by index; their addresses stay
  std::vector<Operation*> free_;
};

}  // namespace hvd::core

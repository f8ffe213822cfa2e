/// @file operation_table.h — the operations of an engine, and their handles.
///
/// The table reuses operations, and frees them at its end.  A handle is an index and a generation, so the table detects
/// stale handles.  Thread-safe: each call holds one lock for a few instructions, and frees memory and calls listeners
/// without the lock.
///
/// The handle holds its operation, and so does each call that uses the handle.  An ended operation without holds is
/// recycled.
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

  /// Fills @p ops: [count] with operations that have handles.
  void take(std::size_t count, Operation** ops);
  /// The number of operations, in use or not.
  std::size_t made() const;
  static std::int64_t handle(const Operation& op) {
    return static_cast<std::int64_t>(op.generation.load(std::memory_order_relaxed)) << 32 | (op.index + 1);
  }
  /// Adds a hold, which let_go() ends.  nullptr: the handle was never given out, or has been released.
  Operation* hold(std::int64_t handle);
  /// Ends a hold.
  void let_go(Operation& op);
  /// Ends the handle's hold.  The handle is stale from now on.
  void release(Operation& op) { release(handle(op)); }
  /// Releases the handle.  False: the handle was stale.  Of several threads that release it at once, one gets true.
  bool release(std::int64_t handle) { return release({&handle, 1}) == 1; }
  /// Releases the valid ones of @p handles.  Returns their number.
  std::size_t release(std::span<const std::int64_t> handles);
  /// Gives the result of an ended operation to the caller.  The caller must free it.  nullptr: another caller has taken
  /// it.
  static void* take_result(Operation& op) { return std::atomic_ref(op.result).exchange(nullptr); }
  /// True if the handle has been given out and not released.
  bool valid(std::int64_t handle) const;
  /// True if the handle's operation has ended well.  False also for a stale handle.
  bool ended_well(std::int64_t handle) const { return ended_well({&handle, 1}) == 1; }
  /// The number of @p handles, from the first on, whose operations have ended well.  Stops at the first other one.
  std::size_t ended_well(std::span<const std::int64_t> handles) const;

  /// Calls @p tell at the end of @p op, or now if the operation has ended.  False: @p op already has a listener.  The
  /// caller holds @p op.
  bool listen(Operation& op, void (*tell)(void*), void* context);
  /// True once listen() has been called.
  bool has_notified() const { return has_notified_.load(std::memory_order_relaxed); }
  /// Sleeps until the operation has ended, at most @p limit_ns.  The caller holds @p op.
  void sleep(Operation& op, std::int64_t limit_ns);
  /// The operations under way for which a thread sleeps, or slept within the last half second.  (Callers wait in short
  /// pieces.) Each once.  The caller holds the drive lock, so none of them ends meanwhile.
  std::vector<const Operation*> awaited(std::int64_t now_ns);

  /// Publishes the end of @p ops, whose results have been written.  The caller holds the drive lock.
  void end(std::span<Operation* const> ops);

 private:
  Operation* at_handle(std::int64_t handle) const;
  void fetch_handle(std::span<const std::int64_t> handles, std::size_t i) const;
  bool unused(const Operation& op) const { return op.holders == 0 && op.done(); }
  void recycle(std::span<Operation* const> ops);

  const std::uint32_t table_;  ///< its number in the process
  RankStatus& status_;
  std::atomic<bool> has_notified_{false};
  mutable std::mutex mutex_;           ///< of all below, and of an operation's generation, holders and listener
  mutable std::deque<Operation> all_;  ///< by index; their addresses stay
  std::vector<Operation*> free_;
  /// An operation for which a thread sleeps, or slept.
  struct Sleep {
    const Operation* operation = nullptr;
    std::int64_t handle = 0;
    std::int64_t left_ns = 0;  ///< when the last thread left; 0: one sleeps
  };
  Sleep* sleep_of(const Operation& op);
  void forget_sleeps(std::int64_t now_ns);
  std::vector<Sleep> sleeps_;
};

}  // namespace hvd::core

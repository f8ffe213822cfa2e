/// @file operation_table.h — the operations of an engine, and their handles.
///
/// A slab: operations are made in chunks, used again, and freed with the table.  A handle is index and generation, so a
/// stale one is recognised.  Thread-safe; only take() uses a lock.
///
/// Holders.  The handle holds an operation, and so does each call that uses it.  An operation that has ended and is
/// held by nobody is recycled, once: whoever sees that first claims it (Operation::life).
///
/// Its end.  The drive side writes what came of the operations, then their states.  After that it looks once, for all
/// that end together, whether anybody has registered with one of them: a thread that sleeps, a listener, the last
/// holder that let go early.  They register first and look at the state then.  Both use registered_ (a
/// read-modify-write each), so the one that comes second sees the other; and the end of an operation with which nobody
/// registered is a single store.
///
/// Why no lock here: callers hold and release handles while the engine's thread ends operations.  With a lock, a thread
/// that loses its core while it has the lock would stop the other one, and ranks often share cores.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <utility>

#include "core/operation.h"
#include "core/rank_status.h"
#include "memory/futex.h"

namespace hvd::core {

class OperationTable {
 public:
  explicit OperationTable(RankStatus& status) : status_(status) {}
  OperationTable(const OperationTable&) = delete;
  OperationTable& operator=(const OperationTable&) = delete;
  ~OperationTable() {
    for (std::uint32_t i = 0; i < made_.load(std::memory_order_relaxed); ++i) free_result(at(i));
    for (auto& chunk : chunks_) delete[] chunk.load(std::memory_order_relaxed);
  }
  /// ops: [count], filled.
  void take(std::size_t count, Operation** ops) {
    std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < count; ++i) {
      if (!free_) refill();
      Operation& op = free_ ? *free_ : make();
      free_ = op.next_free;
      op.state.store(Operation::under_way, std::memory_order_relaxed);
      op.listener.store(Operation::none, std::memory_order_relaxed);
      op.life.store(next_generation(op.life.load(std::memory_order_relaxed)) | 1, std::memory_order_relaxed);
      op.status = 0;
      ops[i] = &op;
    }
  }
  /// How many there are, in use or not.
  std::uint32_t made() const { return made_.load(std::memory_order_acquire); }
  static std::int64_t handle(const Operation& op) {
    return static_cast<std::int64_t>((op.life.load(std::memory_order_relaxed) & ~holders_mask) | (op.index + 1));
  }
  /// One more hold, to be let go; nullptr when the handle was never given out or has been released.
  Operation* hold(std::int64_t handle) {
    Operation* op = at_handle(handle);
    return op && change(*op, handle, [](std::uint64_t life) { return life + 1; }) ? op : nullptr;
  }
  /// The handle's hold ends: it is stale from now on.
  void release(Operation& op) { release(handle(op)); }
  /// The same; false when it was stale before, as for all but one of several threads that do this at once.
  bool release(std::int64_t handle) {
    Operation* mine = nullptr;
    const bool good = release(handle, mine);
    if (mine) give_back(mine, mine);
    return good;
  }
  /// All of them, those that are good at least.  How many were.
  std::size_t release(std::span<const std::int64_t> handles) {
    std::size_t good = 0;
    Operation *first = nullptr, *last = nullptr;
    for (const std::int64_t handle : handles) {
      Operation* mine = nullptr;
      good += release(handle, mine);
      if (!mine) continue;
      (last ? last->next_free : first) = mine;
      last = mine;
    }
    if (first) give_back(first, last);
    return good;
  }
  /// The result of an operation that has ended, now the caller's; nullptr for all callers but one.
  static void* take_result(Operation& op) { return std::atomic_ref(op.result).exchange(nullptr); }
  /// One hold ends.
  void let_go(Operation& op) {
    std::uint64_t life = op.life.load(std::memory_order_acquire);
    for (;;) {
      const bool last = (life & holders_mask) == 1;
      if (last) registered_.fetch_add(1, std::memory_order_acq_rel);
      if (op.life.compare_exchange_weak(life, life - 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
        if (last) abandoned(op);
        return;
      }
      if (last) unregister();
    }
  }
  /// It has been given out, and not released yet.
  bool valid(std::int64_t handle) const {
    const Operation* op = at_handle(handle);
    return op && op->life.load(std::memory_order_acquire) >> 32 == static_cast<std::uint64_t>(handle) >> 32;
  }
  /// The handle's operation has ended, and well.  False also for a handle that means nothing.
  bool ended_well(std::int64_t handle) const {
    const Operation* op = at_handle(handle);
    if (!op) return false;
    const auto generation = static_cast<std::uint64_t>(handle) >> 32;
    return op->life.load(std::memory_order_acquire) >> 32 == generation &&
           op->state.load(std::memory_order_acquire) == Operation::ended &&
           op->life.load(std::memory_order_acquire) >> 32 == generation;
  }

  /// False when somebody listens already.  Calls @p tell itself when the operation has ended.
  bool listen(Operation& op, void (*tell)(void*), void* context) {
    std::uint32_t now = op.listener.load(std::memory_order_acquire);
    if (now == Operation::set) return false;
    if (now == Operation::none && !op.done()) {
      op.tell = tell;
      op.tell_context = context;
      registered_.fetch_add(1, std::memory_order_acq_rel);
      status_.asked();
      if (op.listener.compare_exchange_strong(now, Operation::set, std::memory_order_acq_rel)) {
        if (op.done()) told(op);
        return true;
      }
      status_.told();
      unregister();
      if (now == Operation::set) return false;
    }
    tell(context);
    return true;
  }

  /// Sleeps until the operation has ended, at most @p limit_ns.  While held.
  void sleep(Operation& op, std::int64_t limit_ns) {
    op.sleepers.fetch_add(1, std::memory_order_acq_rel);
    registered_.fetch_add(1, std::memory_order_acq_rel);
    if (!op.done()) memory::futex_wait(op.state, Operation::under_way, limit_ns);
    op.sleepers.fetch_sub(1, std::memory_order_acq_rel);
    unregister();
  }

  /// The operations have ended; what came of them has been written.  Drive side.  Until this returns, none of them is
  /// given out anew.
  void end(std::span<Operation* const> ops) {
    const std::uint64_t phase = phase_.load(std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_relaxed);
    for (Operation* op : ops)
      op->state.store(op->status != HVD_OK  ? Operation::failed
                      : op->more && op->gpu ? Operation::queued
                                            : Operation::ended,
                      std::memory_order_release);
    if (registered_.fetch_add(0, std::memory_order_acq_rel) != 0)
      for (Operation* op : ops) {
        if (op->sleepers.load(std::memory_order_acquire) != 0) memory::futex_wake(op->state);
        if (op->listener.load(std::memory_order_acquire) == Operation::set) told(*op);
        forgotten(*op);
      }
    phase_.store(phase + 2, std::memory_order_release);
  }

 private:
  /// @p mine: the operation, when nobody holds it any more and it has ended: to be given back.
  bool release(std::int64_t handle, Operation*& mine) {
    Operation* op = at_handle(handle);
    if (!op) return false;
    const bool done = op->done();
    if (!done) registered_.fetch_add(1, std::memory_order_acq_rel);
    const std::uint64_t before = change(*op, handle, [done](std::uint64_t life) {
      const std::uint64_t left = (life & holders_mask) - 1;
      return next_generation(life) | (left == 0 && done ? claimed : left);
    });
    const bool last = (before & holders_mask) == 1;
    if (done && last) clear(*(mine = op));
    if (!done) last ? abandoned(*op) : unregister();
    return before != 0;
  }
  void unregister() { registered_.fetch_sub(1, std::memory_order_acq_rel); }
  /// Nobody holds it; registered.  The order of the two looks at registered_ says who claims it: after the end was
  /// looked for, it is seen here.
  void abandoned(Operation& op) {
    registered_.fetch_add(0, std::memory_order_acq_rel);
    if (op.done()) forgotten(op);
  }
  /// It has ended: whoever claims it recycles it.
  void forgotten(Operation& op) {
    std::uint64_t life = op.life.load(std::memory_order_acquire);
    if ((life & (claimed | holders_mask)) != 0) return;
    if (!op.life.compare_exchange_strong(life, life | claimed, std::memory_order_acq_rel)) return;
    unregister();
    recycle(op);
  }
  void told(Operation& op) {
    if (op.listener.exchange(Operation::told, std::memory_order_acq_rel) != Operation::set) return;
    unregister();
    status_.told();
    op.tell(op.tell_context);
  }
  /// What was returned early is set aside until end() has gone on.  Under the lock.
  void refill() {
    free_ = returned_.exchange(nullptr, std::memory_order_acquire);
    if (free_) return;
    Operation* early = early_.exchange(nullptr, std::memory_order_acquire);
    const std::uint64_t phase = phase_.load(std::memory_order_acquire);
    if (phase != aside_phase_) free_ = std::exchange(aside_, nullptr);
    aside_phase_ = phase;
    if (!early) return;
    Operation*& to = phase % 2 == 0 ? free_ : aside_;
    Operation* last = early;
    while (to && last->next_free) last = last->next_free;
    if (to) last->next_free = to;
    to = early;
  }

  static constexpr std::uint64_t claimed = 1u << 31;
  static constexpr std::uint64_t holders_mask = claimed - 1;
  static constexpr std::uint32_t first_chunk = 64;  ///< each further one is as large as all before it and this

  static std::uint64_t next_generation(std::uint64_t life) { return (((life >> 32) + 1) & 0x7fffffffu) << 32; }
  /// Even, and another one in each table, so that handles of a world that was shut down mean nothing in the next.
  std::uint64_t first_generation(std::uint32_t index) const {
    return (((std::uint64_t{table_} << 32 | index) * 0x9e3779b97f4a7c15ull) >> 34 << 1) << 32;
  }
  static std::uint32_t next_table() {
    static std::atomic<std::uint32_t> tables{0};
    return ++tables;
  }
  /// What the handle's number means, if it means anything.
  Operation* at_handle(std::int64_t handle) const {
    const std::uint64_t index = static_cast<std::uint64_t>(handle) & 0xffffffffu;
    if (handle <= 0 || index == 0 || index > made_.load(std::memory_order_acquire)) return nullptr;
    return (static_cast<std::uint64_t>(handle) >> 32 & 1) ? &at(static_cast<std::uint32_t>(index - 1)) : nullptr;
  }
  /// life = f(life) if the handle is good: then what it was, else 0.
  template <class F>
  static std::uint64_t change(Operation& op, std::int64_t handle, F&& f) {
    std::uint64_t life = op.life.load(std::memory_order_acquire);
    do {
      if (life >> 32 != static_cast<std::uint64_t>(handle) >> 32) return 0;
    } while (!op.life.compare_exchange_weak(life, f(life), std::memory_order_acq_rel, std::memory_order_acquire));
    return life;
  }
  static void free_result(Operation& op) {
    if (op.result && op.gpu && op.gpu->result)
      op.gpu->device->free_result(op.result);
    else
      std::free(op.result);
    op.result = nullptr;
  }
  void recycle(Operation& op) {
    clear(op);
    give_back(&op, &op);
  }
  static void clear(Operation& op) {
    if (!op.more) return;
    free_result(op);
    op.gpu.reset();
    op.dim0 = 0;
    op.last_rank = -1;
    op.error.clear();
    op.splits.clear();
    op.received.clear();
    op.result_shape.clear();
    op.more = false;
  }
  /// A list of them, from @p first to @p last.
  void give_back(Operation* first, Operation* last) {
    // While end() is at work it may look at them again.
    auto& list = phase_.load(std::memory_order_acquire) % 2 == 0 ? returned_ : early_;
    // Only whole lists are taken off: nothing can come back under a push.
    last->next_free = list.load(std::memory_order_relaxed);
    while (!list.compare_exchange_weak(last->next_free, first, std::memory_order_release, std::memory_order_relaxed)) {}
  }

  /// Chunk c begins at index first_chunk * (2^c - 1).
  Operation& at(std::uint32_t index) const {
    const std::uint32_t scaled = index / first_chunk + 1;
    const int c = 31 - __builtin_clz(scaled);
    return chunks_[static_cast<std::size_t>(c)].load(
        std::memory_order_acquire)[index - first_chunk * ((std::uint32_t{1} << c) - 1)];
  }
  /// Under the lock.
  Operation& make() {
    const std::uint32_t index = made_.load(std::memory_order_relaxed);
    const int c = 31 - __builtin_clz(index / first_chunk + 1);
    auto& chunk = chunks_[static_cast<std::size_t>(c)];
    if (!chunk.load(std::memory_order_relaxed))
      chunk.store(new Operation[std::size_t{first_chunk} << c], std::memory_order_release);
    Operation& op = at(index);
    op.index = index;
    op.next_free = nullptr;
    op.life.store(first_generation(index), std::memory_order_relaxed);
    made_.store(index + 1, std::memory_order_release);
    return op;
  }

  const std::uint32_t table_ = next_table();
  std::mutex mutex_;               ///< of free_, of aside_, and of making
  Operation* free_ = nullptr;      ///< a list by next_free
  Operation* aside_ = nullptr;     ///< another, from early_
  std::uint64_t aside_phase_ = 0;  ///< phase_ then
  RankStatus& status_;
  std::atomic<std::uint64_t> phase_{0};        ///< odd while end() is at work; written by the drive side
  std::atomic<std::uint64_t> registered_{0};   ///< who must be looked for when operations end
  std::atomic<Operation*> returned_{nullptr};  ///< another, to which any thread adds
  std::atomic<Operation*> early_{nullptr};     ///< the same, of those returned while end() was at work
  std::atomic<std::uint32_t> made_{0};
  std::array<std::atomic<Operation*>, 26> chunks_{};
};

}  // namespace hvd::core

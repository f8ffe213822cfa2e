/// @file operation.h — one submitted tensor, and the table of handles.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "common/signature.h"
#include "memory/futex.h"

namespace hvd::core {

struct Entry;
class Set;

/// Lives in a slab: its address stays valid as long as the engine, whatever happens to the handle.
struct Operation {
  enum State : std::uint32_t { under_way = 0, ended = 1, awaited = 2 };  ///< awaited: under way, and somebody sleeps
  std::atomic<std::uint32_t> state{under_way};
  /// Generation << 32 | holders.  The generation is part of the handle, and odd while there is one.  The handle and the
  /// engine hold an operation, and each call that uses it; whoever lets go last recycles it.
  std::atomic<std::uint64_t> life{0};
  std::uint32_t index = 0;
  Operation* next_free = nullptr;

  int status = 0;  ///< hvd_status; written before state becomes ended, like all below
  std::string error;
  Set* of_set = nullptr;  ///< valid while under way
  Entry* entry = nullptr;
  const void* in = nullptr;
  void* out = nullptr;
  std::int64_t dim0 = 0;               ///< allgather, alltoall: this rank's own first dimension
  std::vector<std::int64_t> splits;    ///< alltoall: [size of the set] rows for each member
  std::vector<std::int64_t> received;  ///< allgather, alltoall: [size of the set] rows from each member
  std::int32_t last_rank = -1;         ///< join: the world rank that came last
  unsigned parity = 0;                 ///< which of its two slots an eager tensor is in
  bool by_bit = false;                 ///< announced by its ready bit, not by a record
  void* result = nullptr;              ///< malloc'd; owned until taken
  std::vector<std::int64_t> result_shape;

  /// Who wants to be told of the end.  The two words are written before listener becomes `set`.
  enum Listener : std::uint32_t { none = 0, set = 1, told = 2 };
  std::atomic<std::uint32_t> listener{none};
  void (*tell)(void*) = nullptr;
  void* tell_context = nullptr;

  /// Memory for the result; throws Error{unavailable}.
  void allocate(std::size_t bytes) {
    result = std::malloc(bytes > 0 ? bytes : 1);
    if (!result) throw Error(Code::unavailable, "result", "no memory for " + std::to_string(bytes) + " bytes");
  }

  bool done() const { return state.load(std::memory_order_acquire) == ended; }

  /// False when somebody listens already.  Calls `ended` itself when the operation has ended.
  bool listen(void (*ended)(void*), void* context) {
    std::uint32_t now = listener.load(std::memory_order_acquire);
    if (now == set) return false;
    if (now == none) {
      tell = ended;
      tell_context = context;
      if (listener.compare_exchange_strong(now, set, std::memory_order_acq_rel)) return true;
    }
    ended(context);
    return true;
  }

  /// The operation has ended: tells whoever sleeps or listens.
  void announce() {
    if (state.exchange(ended, std::memory_order_acq_rel) == awaited) memory::futex_wake(state);
    if (listener.exchange(told, std::memory_order_acq_rel) == set) tell(tell_context);
  }

  /// Sleeps until the operation has ended, at most limit_ns.
  void sleep(std::int64_t limit_ns) {
    std::uint32_t now = under_way;
    if (state.compare_exchange_strong(now, awaited) || now == awaited) memory::futex_wait(state, awaited, limit_ns);
  }
};

/// Handles are slab index and generation.  Thread-safe; only taking new ones needs the lock.
class Operations {
 public:
  Operations() = default;
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;
  ~Operations() {
    for (std::uint32_t i = 0; i < made_.load(std::memory_order_relaxed); ++i) std::free(at(i).result);
    for (auto& chunk : chunks_) delete[] chunk.load(std::memory_order_relaxed);
  }
  /// ops: [count], filled.
  void take(std::size_t count, Operation** ops) {
    std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < count; ++i) {
      if (!free_) free_ = returned_.exchange(nullptr, std::memory_order_acquire);
      Operation& op = free_ ? *free_ : make();
      free_ = op.next_free;
      op.next_free = nullptr;
      op.state.store(Operation::under_way, std::memory_order_relaxed);
      op.listener.store(Operation::none, std::memory_order_relaxed);
      op.life.store(next_generation(op.life.load(std::memory_order_relaxed)) | 2, std::memory_order_relaxed);
      op.status = 0;
      op.error.clear();
      op.result_shape.clear();
      op.received.clear();
      op.last_rank = -1;
      ops[i] = &op;
    }
  }
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
    Operation* op = at_handle(handle);
    if (!op) return false;
    const std::uint64_t before =
        change(*op, handle, [](std::uint64_t life) { return next_generation(life) | ((life & holders_mask) - 1); });
    if ((before & holders_mask) == 1) recycle(*op);
    return before != 0;
  }
  /// The result of an operation that has ended, now the caller's; nullptr for all callers but one.
  static void* take_result(Operation& op) { return std::atomic_ref(op.result).exchange(nullptr); }
  /// One hold ends.
  void let_go(Operation& op) {
    if ((op.life.fetch_sub(1, std::memory_order_acq_rel) & holders_mask) == 1) recycle(op);
  }

 private:
  static constexpr std::uint64_t holders_mask = 0xffffffffu;
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
  void recycle(Operation& op) {
    std::free(op.result);
    op.result = nullptr;
    // Only whole lists are taken off: nothing can come back under a push.
    op.next_free = returned_.load(std::memory_order_relaxed);
    while (!returned_.compare_exchange_weak(op.next_free, &op, std::memory_order_release, std::memory_order_relaxed)) {}
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
    op.life.store(first_generation(index), std::memory_order_relaxed);
    made_.store(index + 1, std::memory_order_release);
    return op;
  }

  const std::uint32_t table_ = next_table();
  std::mutex mutex_;                           ///< of free_, and of making
  Operation* free_ = nullptr;                  ///< a list by next_free
  std::atomic<Operation*> returned_{nullptr};  ///< another, to which any thread adds
  std::atomic<std::uint32_t> made_{0};
  std::array<std::atomic<Operation*>, 26> chunks_{};
};

}  // namespace hvd::core

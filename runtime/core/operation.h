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
  std::atomic<std::uint32_t> generation{1};  ///< part of the handle: stale ones are told apart
  std::atomic<int> holders{0};               ///< the handle and the engine; whoever lets go last recycles it
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
      op.holders.store(2, std::memory_order_relaxed);
      op.status = 0;
      op.error.clear();
      op.result_shape.clear();
      op.received.clear();
      ops[i] = &op;
    }
  }
  static std::int64_t handle(const Operation& op) {
    return static_cast<std::int64_t>(op.generation.load(std::memory_order_relaxed)) << 32 | (op.index + 1);
  }
  /// nullptr when the handle was never given out or has been released.
  Operation* find(std::int64_t handle) {
    const std::uint64_t index = static_cast<std::uint64_t>(handle) & 0xffffffffu;
    if (handle <= 0 || index == 0 || index > made_.load(std::memory_order_acquire)) return nullptr;
    Operation& op = at(static_cast<std::uint32_t>(index - 1));
    return op.generation.load(std::memory_order_relaxed) == static_cast<std::uint32_t>(handle >> 32) ? &op : nullptr;
  }
  /// The handle's hold ends: it is stale from now on.
  void release(Operation& op) {
    const std::uint32_t g = op.generation.load(std::memory_order_relaxed);
    op.generation.store((g + 1) & 0x7fffffffu ? (g + 1) & 0x7fffffffu : 1, std::memory_order_relaxed);
    let_go(op);
  }
  /// One hold ends.
  void let_go(Operation& op) {
    if (op.holders.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    std::free(op.result);
    op.result = nullptr;
    // Only whole lists are taken off: nothing can come back under a push.
    op.next_free = returned_.load(std::memory_order_relaxed);
    while (!returned_.compare_exchange_weak(op.next_free, &op, std::memory_order_release, std::memory_order_relaxed)) {}
  }

 private:
  static constexpr std::uint32_t first_chunk = 64;  ///< each further one is as large as all before it and this

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
    made_.store(index + 1, std::memory_order_release);
    return op;
  }

  std::mutex mutex_;                           ///< of free_, and of making
  Operation* free_ = nullptr;                  ///< a list by next_free
  std::atomic<Operation*> returned_{nullptr};  ///< another, to which any thread adds
  std::atomic<std::uint32_t> made_{0};
  std::array<std::atomic<Operation*>, 26> chunks_{};
};

}  // namespace hvd::core

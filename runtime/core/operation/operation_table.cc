#include "core/operation/operation_table.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "common/read_ahead.h"
#include "memory/futex.h"

namespace hvd::core {
namespace {

constexpr std::int64_t sleep_kept_ns = 500'000'000;  ///< longer than a caller's pause between two pieces of its wait
constexpr std::size_t most_sleeps_kept = 16;         ///< then those that are over are forgotten

std::uint32_t next_table() {
  static std::atomic<std::uint32_t> tables{0};
  return ++tables;
}

/// The first generation of an operation: an even number, different in each table.  So a handle of a world that was shut
/// down is invalid in the next world.
std::uint32_t first_generation(std::uint32_t table, std::uint32_t index) {
  return static_cast<std::uint32_t>(((std::uint64_t{table} << 32 | index) * 0x9e3779b97f4a7c15ull) >> 34 << 1);
}

/// A generation is odd while the operation has a handle.  A generation has 31 bits, so a handle is never negative.
void next_generation(Operation& op) {
  op.generation.store((op.generation.load(std::memory_order_relaxed) + 1) & 0x7fffffffu, std::memory_order_relaxed);
}

void free_result(Operation& op) {
  if (op.result && op.gpu && op.gpu->result)
    op.gpu->device->free_result(op.result);
  else
    std::free(op.result);
  op.result = nullptr;
}

void clear(Operation& op) {
  free_result(op);
  op.gpu.reset();
  op.dim0 = 0;
  op.out_bytes = 0;
  op.last_rank = -1;
  op.error.clear();
  op.splits.clear();
  op.received.clear();
  op.result_shape.clear();
  op.more = false;
}

}  // namespace

OperationTable::OperationTable(RankStatus& status) : table_(next_table()), status_(status) {}

OperationTable::~OperationTable() {
  for (Operation& op : all_) free_result(op);
}

void OperationTable::take(std::size_t count, Operation** ops) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < count; ++i) {
    if (free_.empty()) {
      Operation& made = all_.emplace_back();
      made.index = static_cast<std::uint32_t>(all_.size() - 1);
      made.generation = first_generation(table_, made.index);
      free_.push_back(&made);
    }
    if (free_.size() > read_ahead) fetch(free_[free_.size() - 1 - read_ahead], 1);
    Operation& op = *free_.back();
    free_.pop_back();
    next_generation(op);
    op.holders = 1;
    op.state.store(Operation::under_way, std::memory_order_relaxed);
    op.status = 0;
    ops[i] = &op;
  }
}

std::size_t OperationTable::made() const {
  const std::lock_guard lock(mutex_);
  return all_.size();
}

/// Under mutex_.  nullptr: the handle is unknown, or was released.
Operation* OperationTable::at_handle(std::int64_t handle) const {
  const auto generation = static_cast<std::uint64_t>(handle) >> 32;
  const auto index = static_cast<std::uint64_t>(handle) & 0xffffffffu;
  if (generation % 2 == 0 || index == 0 || index > all_.size()) return nullptr;
  Operation& op = all_[static_cast<std::size_t>(index - 1)];
  return op.generation.load(std::memory_order_relaxed) == generation ? &op : nullptr;
}

/// Under mutex_.  In turn @p i of a loop: begins to fetch the operation of a later turn.
void OperationTable::fetch_handle(std::span<const std::int64_t> handles, std::size_t i) const {
  if (i + read_ahead >= handles.size()) return;
  const auto index = static_cast<std::uint64_t>(handles[i + read_ahead]) & 0xffffffffu;
  if (index > 0 && index <= all_.size()) fetch(&all_[static_cast<std::size_t>(index - 1)], 1);
}

Operation* OperationTable::hold(std::int64_t handle) {
  const std::lock_guard lock(mutex_);
  Operation* op = at_handle(handle);
  if (op) ++op->holders;
  return op;
}

void OperationTable::let_go(Operation& op) {
  {
    const std::lock_guard lock(mutex_);
    --op.holders;
    if (!unused(op)) return;
  }
  Operation* one = &op;
  recycle({&one, 1});
}

std::size_t OperationTable::release(std::span<const std::int64_t> handles) {
  std::vector<Operation*> more;  // recycle() clears these first
  std::size_t good = 0;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < handles.size(); ++i) {
      fetch_handle(handles, i);
      Operation* op = at_handle(handles[i]);
      if (!op) continue;
      ++good;
      next_generation(*op);
      --op->holders;
      if (!unused(*op)) continue;
      (op->more ? more : free_).push_back(op);
    }
  }
  if (!more.empty()) recycle(more);
  return good;
}

/// Clears @p ops and puts them into free_.  The caller must not hold mutex_: freeing a result may call the framework.
/// The operations have no holders, so no other thread uses them.
void OperationTable::recycle(std::span<Operation* const> ops) {
  for (Operation* op : ops)
    if (op->more) clear(*op);
  const std::lock_guard lock(mutex_);
  free_.insert(free_.end(), ops.begin(), ops.end());
}

bool OperationTable::valid(std::int64_t handle) const {
  const std::lock_guard lock(mutex_);
  return at_handle(handle) != nullptr;
}

std::size_t OperationTable::ended_well(std::span<const std::int64_t> handles) const {
  const std::lock_guard lock(mutex_);
  std::size_t n = 0;
  while (n < handles.size()) {
    fetch_handle(handles, n);
    const Operation* op = at_handle(handles[n]);
    if (!op || op->state.load(std::memory_order_acquire) != Operation::ended) break;
    ++n;
  }
  return n;
}

bool OperationTable::listen(Operation& op, void (*tell)(void*), void* context) {
  has_notified_.store(true, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);
    if (op.listened) return false;
    if (!op.done()) {
      op.listened = true;
      op.listener = tell;
      op.listener_context = context;
      status_.asked();
      return true;
    }
  }
  tell(context);
  return true;
}

void OperationTable::sleep(Operation& op, std::int64_t limit_ns) {
  {
    const std::lock_guard lock(mutex_);
    if (op.done()) return;
    ++op.sleepers;
    if (Sleep* known = sleep_of(op)) {
      known->left_ns = 0;
    } else {
      if (sleeps_.size() >= most_sleeps_kept) forget_sleeps(memory::now_ns());
      sleeps_.push_back({&op, handle(op), 0});
    }
  }
  memory::futex_wait(op.state, Operation::under_way, limit_ns);
  const std::lock_guard lock(mutex_);
  if (--op.sleepers > 0) return;
  if (Sleep* known = sleep_of(op)) known->left_ns = memory::now_ns();
}

OperationTable::Sleep* OperationTable::sleep_of(const Operation& op) {
  const auto found = std::find_if(sleeps_.begin(), sleeps_.end(),
                                  [&](const Sleep& s) { return s.operation == &op && s.handle == handle(op); });
  return found == sleeps_.end() ? nullptr : &*found;
}

/// Forgets the sleeps for operations that have ended or been recycled, and those that ended long ago.
void OperationTable::forget_sleeps(std::int64_t now_ns) {
  std::erase_if(sleeps_, [&](const Sleep& s) {
    return s.operation->done() || s.handle != handle(*s.operation) ||
           (s.left_ns != 0 && now_ns - s.left_ns > sleep_kept_ns);
  });
}

std::vector<const Operation*> OperationTable::awaited(std::int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  forget_sleeps(now_ns);
  std::vector<const Operation*> found;
  for (const Sleep& s : sleeps_) found.push_back(s.operation);
  return found;
}

void OperationTable::end(std::span<Operation* const> ops) {
  struct Listening {
    void (*tell)(void*);
    void* context;
  };
  std::vector<Listening> listening;  // mostly empty, so mostly without an allocation
  std::vector<Operation*> unheld;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      fetch_later(ops, i, 1);
      Operation* const op = ops[i];
      op->state.store(op->status != HVD_OK  ? Operation::failed
                      : op->more && op->gpu ? Operation::queued
                                            : Operation::ended,
                      std::memory_order_release);
      if (op->sleepers > 0) memory::futex_wake(op->state);
      if (std::exchange(op->listened, false)) listening.push_back({op->listener, op->listener_context});
      if (op->holders == 0) unheld.push_back(op);
    }
  }
  if (!unheld.empty()) recycle(unheld);
  for (const Listening& l : listening) {
    status_.told();
    l.tell(l.context);
  }
}

}  // namespace hvd::core

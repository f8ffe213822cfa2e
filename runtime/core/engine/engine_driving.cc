/// @file engine_driving.cc — who drives the engine's sets, and who sleeps: callers that wait, the engine's own thread,
/// and the transport's, which a message wakes.
#include <sched.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "core/engine/engine.h"
#include "memory/backoff.h"
#include "memory/doorbell.h"

namespace hvd::core {
namespace {

using memory::Backoff;
using memory::now_ns;

constexpr std::int64_t farthest_poll_ns = 10'000'000;  ///< several nodes: an idle leader looks for messages so often

}  // namespace

bool Engine::step(ProcessSet& set, ProcessSet::StepLimit limit) {
  try {
    return set.step(limit);
  } catch (const Error& e) {
    if (wakes_ && e.code == Code::peer_lost) (transport_->lost().empty() ? shared_.departed : shared_.died).store(true);
    set.fail_all(static_cast<int>(e.code), e.what());
  } catch (const std::exception& e) { set.fail_all(HVD_INTERNAL, e.what()); }
  return true;
}

/// All sets, once.  The global one may open and close others.
bool Engine::step() {
  bool moved = false;
  for (std::size_t i = 0; i < mine_.size(); ++i) {
    const auto held = mine_[i];
    moved |= step(*held);
  }
  return moved;
}

/// Of encrypted tensors the end may still be here when their operation is over.
bool Engine::busy() {
  return std::any_of(mine_.begin(), mine_.end(), [](const auto& s) { return s->busy(); }) || transport_->flush();
}

/// Nanoseconds that the engine may sleep, where all busy sets wait behind a GPU.  0: at least one set does not.
std::int64_t Engine::behind_gpu_ns() const {
  std::int64_t least = 0;
  for (const auto& s : mine_) {
    if (!s->busy()) continue;
    const std::int64_t left = s->behind_gpu_ns();
    if (left == 0) return 0;
    least = least == 0 ? left : std::min(least, left);
  }
  return least;
}

/// False when somebody else drives.  @p op: what the caller waits for; other sets get their turn less often.
bool Engine::drive(const Operation* op, bool& moved) {
  std::unique_lock lock(drive_, std::try_to_lock);
  if (!lock) return false;
  if (mine_.size() == 1)
    moved = step(*global_);
  else if (!op || ++turns_ % 8 == 0)
    moved = step();
  else if (!op->done())  // else its set may be gone
    moved = step(*op->of_set);
  if (!moved) transport_->flush();
  return true;
}

/// After mine_ has changed.
void Engine::listen() {
  listens_ =
      std::any_of(mine_.begin(), mine_.end(), [](const auto& s) { return s->leader() && s->world().nodes.size() > 1; });
}

void Engine::begin_polling() {
  if (doorbell_->polling.fetch_add(1, std::memory_order_seq_cst) == 0) arm(false);
}

/// Whether a message from another node wakes: while the thread sleeps, and nobody polls.  Of the thread that goes to
/// sleep and the caller that ends polling, the second one sees the other, and arms.
void Engine::arm(bool on) {
  if (wakes_ && listens_ && doorbell_->sleeping.load(std::memory_order_seq_cst) != 0) transport_->arm(on);
}

/// On a thread of the transport's: a message has come while nobody polled.  This thread drives, so that nobody else
/// need be woken first.
void Engine::arrived() {
  if (stop_.load(std::memory_order_seq_cst) || doorbell_->polling.load(std::memory_order_seq_cst) > 0) return;
  std::unique_lock lock(drive_, std::try_to_lock);
  bool moved = false;
  for (Backoff backoff = Backoff::of_engine(spare_); lock;) {
    if (step()) {
      moved = true;
      backoff.reset();
    } else if (!backoff.spin()) {
      break;
    } else {  // the rank's own thread may be on this core, on its way to wait: then that drives
      lock.unlock();
      sched_yield();
      if (doorbell_->polling.load(std::memory_order_seq_cst) > 0) break;
      lock.try_lock();
    }
  }
  if (!lock) {  // who drives may have looked already
    if (moved) end_deep_sleep();
    if (doorbell_->polling.load(std::memory_order_seq_cst) == 0) doorbell_->ring_always();
    return;
  }
  const bool more = busy();
  lock.unlock();
  if (moved) end_deep_sleep();  // somebody may wait for others now
  if (more)
    doorbell_->ring_always();
  else
    arm(true);
}

/// Nobody rang while we polled, so whoever leaves looks once more and hands over to the thread.
void Engine::end_polling() {
  if (doorbell_->polling.fetch_sub(1, std::memory_order_seq_cst) == 1) arm(true);
  if (shared_.gpu_busy.load(std::memory_order_seq_cst)) end_deep_sleep();  // the thread looks after that
  if (shared_.outstanding.load(std::memory_order_seq_cst) == 0 && !many_nodes_) return;
  std::unique_lock lock(drive_, std::try_to_lock);
  if (!lock) {  // who drives may have looked already (tests/models/doorbell.pml)
    doorbell_->ring_always();
    return;
  }
  const bool more = step() || busy();
  lock.unlock();
  if (more) doorbell_->ring_always();
}

void Engine::submit(ProcessSet& set, std::span<const CheckedRequest> requests, Operation** ops) {
  if (set.submit(requests, ops)) look(set);
  end_deep_sleep();
}

/// The thread sleeps without a limit where nothing was under way: from now on it has to watch, though nobody may wait.
void Engine::end_deep_sleep() {
  if (deep_.load(std::memory_order_seq_cst) && deep_.exchange(false, std::memory_order_seq_cst))
    doorbell_->ring_always();
}

/// The leader of the set's node has something to look at.
void Engine::look(ProcessSet& set) {
  memory::Doorbell& doorbell = set.node().doorbell(0);
  if (set.leader() && !many_nodes_ && doorbell.would_wake()) {
    std::unique_lock lock(drive_, std::try_to_lock);
    if (lock) {
      step(set, ProcessSet::StepLimit::brief);
      const bool more = set.busy();
      lock.unlock();
      if (more) doorbell.ring_always();
      return;
    }
  }
  doorbell.ring();
}

/// Drives until the operation has ended, or nothing has moved for about a millisecond.  While counted as polling.
bool Engine::poll_for(Operation& op, WaitTimer& waited) {
  Backoff backoff = Backoff::of_caller(crowded_ || many_nodes_);
  while (!op.done()) {
    bool moved = false;
    drive(&op, moved);
    if (moved)
      backoff.reset();
    else if (!op.done() && !backoff.pause())
      return false;
    else if (backoff.since_ns())
      waited.since(backoff.since_ns());
  }
  return true;
}

bool Engine::wait(Operation& op, double limit_seconds) {
  if (op.done()) return true;
  const std::int64_t end_ns =
      limit_seconds < 0 ? -1 : now_ns() + static_cast<std::int64_t>(std::min(limit_seconds, 1e9) * 1e9);
  WaitTimer waited(shared_.status);
  begin_polling();
  const bool done = poll_for(op, waited);
  end_polling();
  return done || sleep_for(op, end_ns);
}

/// A long wait: the engine's thread takes over, and wakes us when the operation has ended.
bool Engine::sleep_for(Operation& op, std::int64_t end_ns) {
  doorbell_->ring_always();
  while (!op.done()) {
    const std::int64_t left = end_ns < 0 ? -1 : end_ns - now_ns();
    if (end_ns >= 0 && left <= 0) return false;
    operations().sleep(op, left);
  }
  return true;
}

Operation& Engine::run(ProcessSet& set, const CheckedRequest& request) {
  Operation* op = nullptr;
  WaitTimer waited(shared_.status);  // from here on: whom it wakes, it wakes for the operation
  begin_polling();
  try {
    if (set.submit({&request, 1}, &op)) set.node().doorbell(0).ring();
  } catch (...) {
    end_polling();
    throw;
  }
  const bool done = poll_for(*op, waited);
  end_polling();  // never sleep while counted: nobody would ring
  if (!done) sleep_for(*op, -1);
  return *op;
}

/// The thread's loop: step, spin about as long as a sleep and a wake-up cost, then sleep.  While a GPU is at work, the
/// next batch follows that work on the stream.  One more wake-up then delays nothing, and the thread does not spin.
void Engine::run() {
  shared_.gpus.keep_thread();
  Backoff backoff = Backoff::of_engine(spare_);
  while (!stop_.load(std::memory_order_seq_cst)) {
    bool moved = false;
    if (doorbell_->polling.load(std::memory_order_seq_cst) == 0) {
      if (!drive(nullptr, moved)) {
        sched_yield();
        continue;
      }
      if (moved) {
        backoff.reset();
        naps_ = 0;
        continue;
      }
      if (!shared_.gpu_busy.load(std::memory_order_relaxed) && backoff.spin()) {
        if (many_nodes_) sched_yield();  // else it may keep the rank's own thread from this core
        continue;
      }
      watch();
      check_stalls();
      bool more;
      std::int64_t behind_gpu = 0;
      {
        const std::lock_guard lock(drive_);
        more = busy();
        if (more) behind_gpu = behind_gpu_ns();
      }
      if (more) {  // in the midst of something, and nobody rings for that
        if (behind_gpu > 0)
          nap(behind_gpu);
        else if (!backoff.pause())
          nap(std::min(++naps_, 10) * 50'000);
        continue;
      }
    } else {
      watch();
    }
    if (sleep()) backoff.reset();  // only a ring promises work; a time-out is no reason to spin
  }
}

/// In the midst of a batch: looks again soon, and at once when a message wakes.
void Engine::nap(std::int64_t limit) {
  if (!many_nodes_ || !transport_->nap(limit)) memory::futex_wait(doorbell_->sleeping, 0, limit);
}

/// True when somebody rang.
bool Engine::sleep() {
  doorbell_->sleeping.store(1, std::memory_order_seq_cst);
  bool moved = false;
  if (!stop_.load(std::memory_order_seq_cst)) {
    if (doorbell_->polling.load(std::memory_order_seq_cst) == 0) {
      const std::lock_guard lock(drive_);
      moved = step() || busy();
    }
    auto under_way = [this] { return shared_.outstanding.load() > 0 || shared_.gpu_busy.load(); };
    bool waits = under_way() || stalls_;
    if (waits || moved) {
      idle_sleeps_ = 0;
    } else if (++idle_sleeps_ > 3) {  // else each step of a script would have to wake us
      deep_.store(true, std::memory_order_seq_cst);
      waits = under_way();  // what came before that was to be seen
    }
    std::int64_t limit = deep_.load(std::memory_order_relaxed) && !waits ? -1 : watch_after_ns;
    if (listens_ && wakes_) {
      if (doorbell_->polling.load(std::memory_order_seq_cst) == 0) arm(true);
    } else if (listens_) {
      naps_ = std::min(naps_ + 1, 200);
      limit = std::min<std::int64_t>(naps_ * 50'000, waits ? 1'000'000 : farthest_poll_ns);
    }
    if (!moved && !stop_.load(std::memory_order_seq_cst)) memory::futex_wait(doorbell_->sleeping, 1, limit);
  }
  if (wakes_ && listens_) transport_->arm(false);  // who rang has taken sleeping: arm() would not
  deep_.store(false, std::memory_order_seq_cst);
  const bool rung = doorbell_->sleeping.exchange(0, std::memory_order_seq_cst) == 0;
  if (rung) idle_sleeps_ = 0;
  return rung || moved;
}

}  // namespace hvd::core

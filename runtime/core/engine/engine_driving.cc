/// @file engine_driving.cc — which threads drive the engine's sets, and when they sleep.
///
/// Three kinds of threads drive: callers that wait, the engine's own thread, and the transport's thread, which a
/// message wakes.
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

constexpr std::int64_t farthest_poll_ns = 10'000'000;  ///< several nodes: the longest pause of an idle leader's polling

/// The time at which a wait of @p limit_seconds ends; -1: no limit.
std::int64_t end_after(double limit_seconds) {
  return limit_seconds < 0 ? -1 : now_ns() + static_cast<std::int64_t>(std::min(limit_seconds, 1e9) * 1e9);
}

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

/// Steps each set once.  The global set may open and close other sets meanwhile.
bool Engine::step() {
  bool moved = false;
  for (std::size_t i = 0; i < mine_.size(); ++i) {
    const auto held = mine_[i];
    moved |= step(*held);
  }
  return moved;
}

/// True while a set has work, or the transport has bytes to send.  The last bytes of an encrypted tensor may be left
/// when its operation has ended.
bool Engine::busy() {
  return std::any_of(mine_.begin(), mine_.end(), [](const auto& s) { return s->busy(); }) || transport_->flush();
}

/// Nanoseconds that the engine may sleep, if all busy sets wait behind a GPU.  0: no set is busy, or a busy set does
/// not wait.
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

/// Drives the sets once.  False: another thread drives.  @p op: the operation for which the caller waits.  The
/// operation's set is stepped in most turns, and all sets in each eighth.  nullptr: all sets are stepped.
bool Engine::drive(const Operation* op, bool& moved) {
  std::unique_lock lock(drive_, std::try_to_lock);
  if (!lock) return false;
  if (mine_.size() == 1)
    moved = step(*global_);
  else if (!op || ++turns_ % 8 == 0)
    moved = step();
  else if (!op->done())  // the set of an ended operation may be gone
    moved = step(*op->of_set);
  if (!moved) transport_->flush();
  return true;
}

/// Updates listens_: true if this rank leads its node in a set of several nodes.  To be called after mine_ has changed.
void Engine::listen() {
  listens_ =
      std::any_of(mine_.begin(), mine_.end(), [](const auto& s) { return s->leader() && s->world().nodes.size() > 1; });
}

void Engine::begin_polling() {
  if (doorbell_->polling.fetch_add(1, std::memory_order_seq_cst) == 0) arm(false);
}

/// Sets whether a message from another node wakes the transport's thread.  A message must do so while the engine's
/// thread sleeps and no caller polls.  A thread that goes to sleep and a caller that ends polling each write a word,
/// then read the other's word.  The later of the two sees both words, and arms.
void Engine::arm(bool on) {
  if (wakes_ && listens_ && doorbell_->sleeping.load(std::memory_order_seq_cst) != 0) transport_->arm(on);
}

/// Looks for work and arms within a millisecond.  For a caller that ends polling while this rank has no operation under
/// way: no message is urgent then, and the next operation often follows at once.  So operations in a row need no system
/// call for this.
void Engine::arm_later() {
  if (!wakes_ || !listens_ || doorbell_->sleeping.load(std::memory_order_seq_cst) == 0) return;
  if (!arms_later_.exchange(true, std::memory_order_seq_cst)) transport_->call_later();
}

/// Called on a thread of the transport when a message has arrived and no caller polls, or after arm_later().  This
/// thread drives, so no other thread must be woken first.  Model of the arming: tests/models/arrival.pml.
void Engine::arrived() {
  // Must be cleared before `polling` is read: a caller that ends polling after the read sets the timer again.
  const bool arms = arms_later_.exchange(false, std::memory_order_seq_cst);  // perhaps no message has arrived
  if (stop_.load(std::memory_order_seq_cst) || doorbell_->polling.load(std::memory_order_seq_cst) > 0) return;
  std::unique_lock lock(drive_, std::try_to_lock);
  bool moved = false;
  for (Backoff backoff = Backoff::of_engine(spare_); lock;) {
    if (step()) {
      moved = true;
      backoff.reset();
    } else if ((arms && !moved) || !backoff.spin()) {
      break;
    } else {  // the caller's thread may share this core, and drives once it waits
      lock.unlock();
      sched_yield();
      if (doorbell_->polling.load(std::memory_order_seq_cst) > 0) break;
      lock.try_lock();
    }
  }
  if (!lock) {  // the thread that drives may have looked before the message came
    if (moved) end_deep_sleep();
    if (doorbell_->polling.load(std::memory_order_seq_cst) == 0) doorbell_->ring_always();
    return;
  }
  const bool more = busy();
  lock.unlock();
  if (moved) end_deep_sleep();  // operations may wait for other ranks now
  if (more)
    doorbell_->ring_always();
  else
    arm(true);
}

/// While a caller polls, no thread rings.  So a caller that ends polling looks once more, and hands over to the
/// engine's thread.  Without operations under way, the caller does not look at the network (arm_later()).
void Engine::end_polling() {
  const bool last = doorbell_->polling.fetch_sub(1, std::memory_order_seq_cst) == 1;
  const bool under_way = shared_.outstanding.load(std::memory_order_seq_cst) > 0;
  if (last) under_way ? arm(true) : arm_later();
  if (shared_.gpu_busy.load(std::memory_order_seq_cst)) end_deep_sleep();  // the thread watches the GPU
  if (!under_way && !many_nodes_) return;
  std::unique_lock lock(drive_, std::try_to_lock);
  if (!lock) {  // the thread that drives may have looked too early (tests/models/doorbell.pml)
    doorbell_->ring_always();
    return;
  }
  const bool more = (under_way || busy()) && (step() || busy());
  lock.unlock();
  if (more) doorbell_->ring_always();
}

void Engine::submit(ProcessSet& set, std::span<const CheckedRequest> requests, Operation** ops) {
  if (set.submit(requests, ops)) look(set);
  end_deep_sleep();
}

void Engine::capture(ProcessSet& set, std::span<const CheckedRequest> requests, Operation** ops) {
  set.capture(requests, [&](const CheckedRequest& p) -> Operation& { return run(set, p); });
  operations().take(requests.size(), ops);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].signature.operation() == Kind::alltoall) {
      ops[i]->received = requests[i].rows_for(set.world().size);  // all parts are equal
      ops[i]->more = true;
    }
    ops[i]->state.store(Operation::ended, std::memory_order_release);
  }
}

/// Wakes the engine's thread from a sleep without a limit.  The thread sleeps so while nothing is under way.  Once an
/// operation is under way, the thread must watch, even if no caller waits.
void Engine::end_deep_sleep() {
  if (deep_.load(std::memory_order_seq_cst) && deep_.exchange(false, std::memory_order_seq_cst))
    doorbell_->ring_always();
}

/// Lets the leader of this node look at new announcements.  If this rank is the leader, this thread steps the set,
/// where possible.  Otherwise the leader's doorbell rings.
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

/// Drives until the operation has ended (true), or nothing has moved for about a millisecond (false).  The caller must
/// be counted as polling.
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
  const std::int64_t end_ns = end_after(limit_seconds);
  WaitTimer waited(shared_.status);
  begin_polling();
  const bool done = poll_for(op, waited);
  end_polling();
  return done || sleep_for(op, end_ns);
}

/// A long wait: sleeps while the engine's thread drives, until the operation has ended (true) or @p end_ns (false).
/// -1: no limit.
bool Engine::sleep_for(Operation& op, std::int64_t end_ns) {
  doorbell_->ring_always();
  while (!op.done()) {
    const std::int64_t left = end_ns < 0 ? -1 : end_ns - now_ns();
    if (end_ns >= 0 && left <= 0) return false;
    operations().sleep(op, left);
  }
  return true;
}

/// Rings the leader's doorbell, unless the leader has seen the announcement of @p op.  A leader that has done so, and
/// sleeps again, has written its command.  So this rank looks for the command between its look at the leader and the
/// ring.  The caller must be counted as polling.
void Engine::tell_leader(ProcessSet& set, Operation& op) {
  memory::Doorbell& doorbell = set.node().doorbell(0);
  if (!doorbell.would_wake()) return;
  bool moved = false;
  drive(&op, moved);
  if (!op.done()) doorbell.ring();
}

Operation& Engine::run(ProcessSet& set, const CheckedRequest& request, double limit_seconds) {
  const std::int64_t end_ns = end_after(limit_seconds);
  Operation* op = nullptr;
  WaitTimer waited(shared_.status);  // the wait includes the time that submit() takes to wake other ranks
  begin_polling();
  try {
    if (set.submit({&request, 1}, &op)) tell_leader(set, *op);
  } catch (...) {
    end_polling();
    throw;
  }
  const bool done = poll_for(*op, waited);
  end_polling();  // a caller counted as polling must not sleep: no thread would ring
  if (!done) sleep_for(*op, end_ns);
  return *op;
}

/// The thread's loop: step, spin for about the cost of a sleep and a wake-up, then sleep.  While a GPU is at work, the
/// next batch follows that work on the stream.  A wake-up then delays nothing, so the thread does not spin.
void Engine::run() {
  shared_.gpus.keep_thread();
  shared_.status.recorder().engine_runs();
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
        if (many_nodes_) sched_yield();  // otherwise the caller's thread may not get this core
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
      if (more) {  // work is under way, and no thread rings for it
        if (behind_gpu > 0)
          nap(behind_gpu);
        else if (!backoff.pause())
          nap(std::min(++naps_, 10) * 50'000);
        continue;
      }
    } else {
      watch();
    }
    if (sleep()) backoff.reset();  // after a ring there is work; after a time-out the thread does not spin
  }
}

/// Sleeps for @p limit nanoseconds while work is under way.  With several nodes, a message ends the sleep.
void Engine::nap(std::int64_t limit) {
  if (!many_nodes_ || !transport_->nap(limit)) memory::futex_wait(doorbell_->sleeping, 0, limit);
}

/// Sleeps until a thread rings or a limit is over.  True: a thread rang, or a last step found work.
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
    } else if (++idle_sleeps_ > 3) {  // not sooner: each submit() must wake a thread in such a sleep
      deep_.store(true, std::memory_order_seq_cst);
      waits = under_way();  // an operation submitted before that did not ring
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
  if (wakes_ && listens_) transport_->arm(false);  // a ring has cleared `sleeping`, so arm() would do nothing
  deep_.store(false, std::memory_order_seq_cst);
  const bool rung = doorbell_->sleeping.exchange(0, std::memory_order_seq_cst) == 0;
  if (rung) idle_sleeps_ = 0;
  return rung || moved;
}

}  // namespace hvd::core

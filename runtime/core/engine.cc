#include "core/engine.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "memory/backoff.h"
#include "memory/wake.h"
#include "transport/share.h"

namespace hvd::core {
namespace {

using memory::Backoff;
using memory::now_ns;

constexpr std::int64_t watch_after_ns =
    100'000'000;  ///< without progress for so long: look whether the peers are there
constexpr std::int64_t farthest_poll_ns = 10'000'000;  ///< several nodes: an idle leader looks for messages so often

memory::Geometry geometry_of(const World& world, const Config& config) {
  memory::Geometry g;
  g.ranks = world.local_size();
  // Evicted ids rest until everybody has forgotten them: some spare ones keep new names from waiting.
  g.words = (config.cache_capacity + 1024 + 63) / 64;
  g.eager_bytes = std::min<std::size_t>(4 << 20, (std::size_t{64} << 20) / static_cast<std::size_t>(g.ranks));
  return g;
}

int cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

Engine::Engine(std::unique_ptr<transport::Transport> transport, const Config& config)
    : config_(config), transport_(std::move(transport)) {
  world_ = World::of(transport_->rank(), transport_->host_of(), config_.ranks_per_node);
  many_nodes_ = world_.nodes.size() > 1;
  std::vector<Card> cards;
  for (const std::string& text : exchange(*transport_, Card::mine().text(), config_.start_limit_seconds))
    cards.push_back(Card::of(text));
  for (int r : world_.locals()) arenas_.push_back(memory::map_arena(cards[static_cast<std::size_t>(r)].arena));
  memory::Node node(geometry_of(world_, config_), world_.local_rank());
  node.attach_arenas(arenas_);
  node.attach(transport::share(*transport_, world_.locals(), node.total_bytes(), config_.start_limit_seconds));
  crowded_ = world_.local_size() > cores();
  set_ = std::make_unique<Set>(world_, config_, *transport_, std::move(node), operations_, tracer_);
  bell_ = &set_->node().bell(world_.local_rank());
  peers_ = std::make_unique<Peers>(world_, std::move(cards));
  thread_ = std::thread([this] { run(); });
}

Engine::~Engine() {
  stop_.store(true, std::memory_order_seq_cst);
  memory::ring_always(*bell_);
  thread_.join();
  std::lock_guard lock(drive_);
  memory::Node& node = set_->node();
  set_->fail_all(HVD_PEER_LOST, "the runtime was shut down");
  leave_message();
  node.presence(node.me).departed.store(1, std::memory_order_seq_cst);
  for (int r = 0; r < node.ranks; ++r)
    if (r != node.me) memory::ring_always(node.bell(r));
}

/// To the other nodes: a leader tells its neighbours in the tree, others tell their leader.
void Engine::leave_message() {
  if (!many_nodes_) return;
  const std::string text = "rank " + std::to_string(world_.rank) + " has shut down while this rank waits for it";
  try {
    if (Leader* leader = set_->leader()) {
      leader->announce_departure(text);
      return;
    }
    // The message outlives this engine if need be: it may be on its way for a while.
    auto* body = new std::string(Leader::departure(world_.rank, text));
    const transport::Ticket t =
        transport_->isend(world_.locals().front(), transport::Tag::up, body->data(), body->size());
    const std::int64_t end = now_ns() + 1'000'000'000;
    bool sent = false;
    while (!(sent = transport_->test(t)) && now_ns() < end) sched_yield();
    if (sent)
      delete body;
    else
      transport_->abandon(t);
  } catch (const Error&) {  // the others are gone already, or will see it otherwise
  }
}

bool Engine::step() {
  try {
    return set_->step();
  } catch (const Error& e) { set_->fail_all(static_cast<int>(e.code), e.what()); } catch (const std::exception& e) {
    set_->fail_all(HVD_INTERNAL, e.what());
  }
  return true;
}

/// False when somebody else drives.
bool Engine::drive(bool& moved) {
  std::unique_lock lock(drive_, std::try_to_lock);
  if (!lock) return false;
  moved = step();
  return true;
}

void Engine::begin_polling() { bell_->polling.fetch_add(1, std::memory_order_seq_cst); }

/// Nobody rang while we polled, so whoever leaves looks once more and hands over to the thread.
void Engine::end_polling() {
  bell_->polling.fetch_sub(1, std::memory_order_seq_cst);
  if (set_->outstanding() == 0 && !many_nodes_) return;
  std::unique_lock lock(drive_, std::try_to_lock);
  if (!lock) return;  // who drives looks for himself
  const bool more = step() || set_->busy();
  lock.unlock();
  if (more) memory::ring_always(*bell_);
}

/// Drives until the operation has ended, or nothing has moved for about a millisecond.  While counted as polling.
bool Engine::poll_for(Operation& op) {
  Backoff backoff(crowded_);
  while (!op.done()) {
    bool moved = false;
    drive(moved);
    if (moved)
      backoff.reset();
    else if (!op.done() && !backoff.pause())
      return false;
  }
  return true;
}

bool Engine::wait(Operation& op, double limit_seconds) {
  if (op.done()) return true;
  const std::int64_t end_ns =
      limit_seconds < 0 ? -1 : now_ns() + static_cast<std::int64_t>(std::min(limit_seconds, 1e9) * 1e9);
  begin_polling();
  const bool done = poll_for(op);
  end_polling();
  return done || sleep_for(op, end_ns);
}

/// A long wait: the engine's thread takes over, and wakes us when the operation has ended.
bool Engine::sleep_for(Operation& op, std::int64_t end_ns) {
  memory::ring_always(*bell_);
  while (!op.done()) {
    const std::int64_t left = end_ns < 0 ? -1 : end_ns - now_ns();
    if (end_ns >= 0 && left <= 0) return false;
    op.sleep(left);
  }
  return true;
}

Operation& Engine::run(const Prepared& request) {
  Operation* op = nullptr;
  begin_polling();
  try {
    set_->submit({&request, 1}, &op);
  } catch (...) {
    end_polling();
    throw;
  }
  const bool done = poll_for(*op);
  end_polling();  // never sleep while counted: nobody would ring
  if (!done) sleep_for(*op, -1);
  return *op;
}

/// The thread's loop: step, spin about as long as a sleep and a wake-up cost, then sleep.
void Engine::run() {
  Backoff backoff(crowded_);
  while (!stop_.load(std::memory_order_seq_cst)) {
    bool moved = false;
    if (bell_->polling.load(std::memory_order_seq_cst) == 0) {
      if (!drive(moved)) {
        sched_yield();
        continue;
      }
      if (moved) {
        backoff.reset();
        idle_since_ns_ = 0;
        naps_ = 0;
        continue;
      }
      if (backoff.spin()) continue;
      watch();
      check_stalls();
      bool busy;
      {
        std::lock_guard lock(drive_);
        busy = set_->busy();
      }
      if (busy) {  // in the midst of something, and nobody rings for that
        if (!backoff.pause()) memory::futex_wait(bell_->sleeping, 0, std::min(++naps_, 10) * 50'000);
        continue;
      }
    }
    if (sleep()) backoff.reset();  // only a ring promises work; a time-out is no reason to spin
  }
}

/// True when somebody rang.
bool Engine::sleep() {
  bell_->sleeping.store(1, std::memory_order_seq_cst);
  bool moved = false;
  if (!stop_.load(std::memory_order_seq_cst)) {
    if (bell_->polling.load(std::memory_order_seq_cst) == 0) {
      std::lock_guard lock(drive_);
      moved = step() || set_->busy();
    }
    const bool waits = set_->outstanding() > 0 || stalls_;
    std::int64_t limit = waits ? watch_after_ns : -1;
    if (many_nodes_ && set_->leader()) {  // nobody rings for a message from another node
      naps_ = std::min(naps_ + 1, 200);
      limit = std::min<std::int64_t>(naps_ * 50'000, waits ? 1'000'000 : farthest_poll_ns);
    }
    if (!moved && !stop_.load(std::memory_order_seq_cst)) memory::futex_wait(bell_->sleeping, 1, limit);
  }
  return bell_->sleeping.exchange(0, std::memory_order_seq_cst) == 0 || moved;
}

/// A leader's thread, whenever it is awake or rung because somebody waits.
void Engine::check_stalls() {
  if (!set_->leader() || config_.stall_warn_ns <= 0) return;
  const std::int64_t now = now_ns();
  if (now - stalls_checked_ns_ < watch_after_ns) return;
  stalls_checked_ns_ = now;
  std::lock_guard lock(drive_);
  stalls_ = set_->leader()->check_stalls(now);
}

/// While operations wait and nothing moves: are the others still there?
void Engine::watch() {
  if (set_->outstanding() == 0) {
    idle_since_ns_ = 0;
    return;
  }
  const std::int64_t now = now_ns();
  if (idle_since_ns_ == 0) {
    idle_since_ns_ = now;
    return;
  }
  if (now - idle_since_ns_ < watch_after_ns) return;
  idle_since_ns_ = now;
  memory::ring_always(set_->node().bell(0));  // the stall check wants to know that somebody waits
  std::lock_guard lock(drive_);
  const auto gone = peers_->find(set_->node());
  if (!gone) {
    missed_ = 0;
    return;
  }
  // How far a rank of another node came is not known here: give what it sent a second to arrive.
  if (world_.node_of[static_cast<std::size_t>(gone->rank)] != world_.node() && ++missed_ < 10) return;
  const memory::Node& node = set_->node();
  if (world_.node_of[static_cast<std::size_t>(gone->rank)] == world_.node() &&
      set_->can_end_without(node.board(world_.local_of[static_cast<std::size_t>(gone->rank)]).executed.load()))
    return;
  set_->fail_all(HVD_PEER_LOST, gone->text + "; under way: " + set_->names_under_way());
}

void Engine::peer_lost(int rank, const std::string& text) {
  std::lock_guard lock(drive_);
  set_->fail_all(HVD_PEER_LOST, "rank " + std::to_string(rank) + " is gone: " + text);
}

}  // namespace hvd::core

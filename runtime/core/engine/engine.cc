#include "core/engine/engine.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "common/log.h"
#include "core/engine/thread_cores.h"
#include "memory/doorbell.h"
#include "transport/share.h"

namespace hvd::core {
namespace {

using memory::now_ns;

int cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/// Exchanges the introductions of all ranks.  Returns each rank's process: [size].  Throws Error{usage} if HVD_BACKENDS
/// is not the same on all ranks.
std::vector<PeerProcess> meet(transport::Transport& transport, const Config& config) {
  std::vector<PeerProcess> processes;
  std::string overrides;  // of rank 0
  std::vector<std::string> texts = transport.introductions();
  if (texts.empty()) texts = exchange(transport, Engine::introduction(config), config.number("HVD_INIT_TIMEOUT"));
  for (const std::string& text : texts) {
    processes.push_back(PeerProcess::of(text));
    const std::string theirs = text.substr(text.find('\n') + 1);
    if (processes.size() == 1) overrides = theirs;
    if (theirs != overrides)
      throw Error(
          Code::usage, "HVD_BACKENDS",
          "rank " + std::to_string(processes.size() - 1) + " has '" + theirs + "', rank 0 has '" + overrides + "'",
          "set it alike on all ranks");
  }
  return processes;
}

}  // namespace

std::string Engine::introduction(const Config& config) {
  return PeerProcess::mine().text() + "\n" + config.text("HVD_BACKENDS");
}

Engine::Engine(std::unique_ptr<transport::Transport> transport, const Config& config, gpu::Platform& gpus)
    : shared_(static_cast<int>(config.integer("HVD_STATUS_FD")), static_cast<int>(config.integer("HVD_RECORDER_FD")),
              gpus),
      config_(config),
      stall_limits_(StallLimits::of(config)),
      reports_(static_cast<int>(config.integer("HVD_LINK_FD")), shared_.status),
      transport_(std::move(transport)) {
  world_ =
      World::of(transport_->rank(), transport_->host_of(), static_cast<int>(config_.integer("HVD_RANKS_PER_NODE")));
  many_nodes_ = world_.nodes.size() > 1;
  std::vector<PeerProcess> processes = meet(*transport_, config_);
  for (int r : world_.locals()) arenas_.push_back(memory::map_arena(processes[static_cast<std::size_t>(r)].arena));
  memory::Node node(geometry_of(world_.local_size(), true, config_), world_.local_rank());
  node.attach_arenas(arenas_);
  node.attach(transport::share(*transport_, world_.locals(), node.total_bytes(), config_.number("HVD_INIT_TIMEOUT")));
  crowded_ = world_.local_size() > cores();
  spare_ = 2 * world_.local_size() <= cores();
  shared_.wake = [this] { doorbell_->ring_always(); };
  shared_.gone = [this](int rank, const std::string& text, const std::string& names) {
    lost_->add(rank, text);
    reports_.failure({HVD_PEER_LOST, rank, names});
  };
  shared_.found = [this](const wire::AgreementFinding& found) { return reports_.finding(found); };
  shared_.diverged = [this](int rank, const std::string& text) { reports_.failure({HVD_DIVERGED, rank, text}); };
  shared_.special = [this](std::span<Operation* const> operations, ops::Rings& rings, const ops::Nodes& nodes) {
    SetChangeStage::Context c{world_,  config_,       *transport_, set().node(), arenas_,
                              shared_, set().batch(), sets_,       {},           {}};
    c.opened = [this](std::shared_ptr<ProcessSet> s) { mine_.push_back(std::move(s)), listen(); };
    c.closed = [this](const std::shared_ptr<ProcessSet>& s) { std::erase(mine_, s), listen(); };
    // Callers wait until their operations end, so each SetChange outlives the stage.
    std::vector<SetChange*> changes;
    for (const Operation* op : operations) changes.push_back(static_cast<SetChange*>(const_cast<void*>(op->in)));
    return std::make_unique<SetChangeStage>(std::move(c), std::move(changes), rings, nodes);
  };
  lost_ = std::make_unique<LostRanks>(world_, std::move(processes), shared_, reports_);
  reports_.failure({});  // clears the failure of an earlier world
  global_ = std::make_shared<ProcessSet>(world_, config_, transport_, std::move(node), shared_);
  global_->begin_tuning(config_);
  mine_.push_back(global_);
  listen();
  doorbell_ = &set().node().doorbell(world_.local_rank());
  const std::optional<cpu_set_t> cores = thread_cores(config_, world_);
  if (many_nodes_) wakes_ = transport_->watch([this] { arrived(); });
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "hvd-engine");
  if (cores) pthread_setaffinity_np(thread_.native_handle(), sizeof *cores, &*cores);
}

Engine::~Engine() { leave(); }

void Engine::leave() {
  if (std::exchange(left_, true)) return;
  stop_.store(true, std::memory_order_seq_cst);
  if (wakes_) transport_->watch({});
  doorbell_->ring_always();
  thread_.join();
  const std::lock_guard lock(drive_);
  finish_devices();
  for (auto& s : mine_) s->compare_results();
  for (auto& s : mine_) s->fail_all(HVD_PEER_LOST, "the runtime was shut down");
  leave_message();
  memory::Node& node = set().node();
  node.presence(node.me).departed.store(1, std::memory_order_seq_cst);
  for (int r = 0; r < node.ranks; ++r)
    if (r != node.me) node.doorbell(r).ring_always();
}

void Engine::revoke(const std::string& why) {
  const std::lock_guard lock(drive_);
  shared_.died.store(true);  // before the callers see the error
  for (auto& s : mine_) s->fail_all(HVD_PEER_LOST, why);
}

/// Waits up to 5 s for the GPUs: other ranks still need this rank's part of their work.
void Engine::finish_devices() {
  const std::int64_t end = now_ns() + 5'000'000'000;
  for (;;) {
    watch_devices();
    if (!shared_.gpu_busy.load() || lost_->any() || now_ns() > end) return;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

/// Tells the other nodes that this rank leaves.  A leader tells its neighbours in the tree.  Any other rank tells its
/// leader.
void Engine::leave_message() {
  if (!many_nodes_) return;
  const std::string text = "rank " + std::to_string(world_.rank) + " has shut down while this rank waits for it";
  try {
    if (Leader* leader = set().leader()) {
      leader->announce_departure(text);
      return;
    }
    // The message may outlive this engine: the transport may send it later.
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
  } catch (const Error&) {  // the other ranks are gone, or will detect the departure in another way
  }
}

/// Looks for stalls in the sets that this rank leads, and in its messages, at most once in watch_after_ns.  On the
/// engine's thread.
void Engine::check_stalls() {
  if (stall_limits_.warn_ns <= 0) return;
  const std::int64_t now = now_ns();
  if (now - stalls_checked_ns_ < watch_after_ns) return;
  stalls_checked_ns_ = now;
  const std::lock_guard lock(drive_);
  stalls_ = false;
  std::vector<StallReport> waits;
  for (auto& s : mine_) {
    if (!s->leader()) continue;
    stalls_ |= s->leader()->stalls().check(now);
    s->leader()->stalls().long_waits(now, waits);
  }
  messages_.long_waits(now, stall_limits_.worth_telling_ns(shared_.status.median_step_ns()), waits);
  reports_.stalls(std::move(waits), now);
}

/// Looks for messages for which a thread waits.  Warns about long waits, and ends sets at the user's limit.  Under
/// drive_.
void Engine::look_at_messages(std::int64_t now) {
  std::vector<MessageWaits::AwaitedMessage> awaited;
  std::map<std::string, ProcessSet*> sets;
  for (const Operation* op : operations().awaited(now)) {
    if (!op->entry || !op->of_set || !negotiate::is_message_name(op->entry->name)) continue;
    const World& pair = op->of_set->world();
    if (pair.size != 2) continue;
    awaited.push_back(
        {op->entry->name, OperationTable::handle(*op), pair.world_rank(1 - pair.rank), op->of_set->in_batch()});
    sets[op->entry->name] = op->of_set;
  }
  messages_.look(awaited, now);
  if (stall_limits_.warn_ns <= 0) return;
  if (const std::string text = messages_.warning(now, stall_limits_.warn_ns); !text.empty()) log_warning(text);
  const bool paused = shared_.status.limit_is_paused(now);
  for (const auto& [name, set] : sets) {
    if (!stall_limits_.is_over(messages_.waited_ns(name, now), paused)) continue;
    const int other = 1 - set->world().rank;
    const std::string why = "'" + name + "' has waited " + std::to_string(messages_.waited_ns(name, now) / 1000000000) +
                            " s for rank " + std::to_string(set->world().world_rank(other)) +
                            " (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS)";
    if (Leader* leader = set->leader()) leader->gone(other, HVD_TIMEOUT, why);  // the other rank learns of it, too
    set->fail_all(HVD_TIMEOUT, why);
    return messages_.clear();
  }
}

/// While operations wait or a GPU works: reports waits and links, and watches the GPUs.  Looks for lost ranks in sets
/// in which nothing moves.
void Engine::watch() {
  if (shared_.outstanding.load(std::memory_order_relaxed) == 0 && !shared_.gpu_busy.load()) return reports_.goes_on();
  const std::int64_t now = now_ns();
  if (now - watched_ns_ < watch_after_ns) return;
  watched_ns_ = now;
  const std::lock_guard lock(drive_);
  watch_devices();
  look_at_messages(now);
  report_wait(now);
  if (many_nodes_) look_at_links(now);
  std::vector<std::shared_ptr<ProcessSet>> stuck;
  for (auto& s : mine_)
    if (s->stuck()) stuck.push_back(s);
  if (stuck.empty()) return;
  for (auto& s : stuck) s->node().doorbell(0).ring_always();  // wakes the leader for its stall check
  for (const transport::LostPeer& l : transport_->lost()) lost_->add(l.rank, l.text, false);
  tell_silent();
  lost_->look(stuck, set().node());
}

/// Passes the use of the links to the step recorder, and the longest round trip to the sets' plans.  Under drive_.
void Engine::look_at_links(std::int64_t now) {
  if (now - links_looked_ns_ < look_at_links_ns) return;
  links_looked_ns_ = now;
  std::vector<recorder::StepRecorder::LinkCounts> links;
  std::int64_t round_trip_ns = 0;
  for (const transport::LinkUse& l : transport_->links()) {
    round_trip_ns = std::max(round_trip_ns, l.round_trip_ns);
    if (links.empty() || links.back().peer != l.peer) links.push_back({l.peer});
    links.back().bytes += l.bytes;
    links.back().busy_ns = std::max(links.back().busy_ns, l.busy_ns);  // a peer's links are busy at the same time
    links.back().round_trip_ns = std::max(links.back().round_trip_ns, l.round_trip_ns);
  }
  if (recorder().memory()) recorder().links(links);
  if (round_trip_ns == 0) return;
  for (auto& s : mine_) s->plan_for(round_trip_ns, config_);
}

std::vector<transport::LinkUse> Engine::links() {
  const std::lock_guard lock(drive_);
  return transport_->links();
}

void Engine::check() {
  const std::lock_guard lock(drive_);
  watch_devices();
  for (const auto& s : mine_) s->check();
}

/// Warns once each time that a rank stops answering.  Under drive_.
void Engine::tell_silent() {
  std::set<int> now;
  for (const transport::LostPeer& l : transport_->silent()) {
    if (silent_.count(l.rank) == 0) log_warning(l.text);
    now.insert(l.rank);
  }
  silent_ = std::move(now);
}

/// Writes into the status page since when nothing moves, which operation waits, and how far the GPU is.  The guard
/// reads that page.  Under drive_.
void Engine::report_wait(std::int64_t now) {
  std::uint64_t progress = 0;
  for (auto& s : mine_) progress += s->progress();
  if (!reports_.waits(progress, now)) return;
  OperationUnderWay first;
  for (auto& s : mine_)
    if (OperationUnderWay o = s->first_under_way(messages_);
        !o.name.empty() && (first.name.empty() || o.name < first.name))
      first = std::move(o);
  const gpu::DeviceWait gpu = device_wait();
  if (first.name.empty()) first = {gpu.tensor, {}};
  if (first.name.empty()) return reports_.goes_on();  // only messages, which no thread waits for
  reports_.waits_for(first.name, first.what, gpu);
}

/// Returns the GPU's progress in the batch with the alphabetically first name, over all sets.  The caller holds drive_.
gpu::DeviceWait Engine::device_wait() {
  gpu::DeviceWait first;
  for (const auto& s : mine_) {
    try {
      gpu::DeviceWait wait = s->device_wait();
      if (!wait.tensor.empty() && (first.tensor.empty() || wait.tensor < first.tensor)) first = std::move(wait);
    } catch (const Error&) {  // the device has failed: watch_devices() fails the set
    }
  }
  return first;
}

/// Looks after GPU work of operations that have ended on the host.  An error of the GPU fails the set.  Under drive_.
void Engine::watch_devices() {
  bool any = false;
  for (auto& s : mine_) {
    try {
      s->watch_device();
    } catch (const Error& e) { s->fail_all(static_cast<int>(e.code), e.what()); }
    any |= s->on_device();
  }
  shared_.gpu_busy.store(any, std::memory_order_seq_cst);
}

void Engine::follow_steps(std::optional<trace::TraceSteps> steps, bool on, std::function<void()> start) {
  window_ = std::make_unique<trace::TraceWindow>(tracer(), steps, recorder().memory(), std::move(start));
  window_->begin(on);
  if (on || recorder().memory()) recorder().follow(window_.get());  // otherwise unused, and a cost for each wait
}

void Engine::stop_timeline() {
  {
    const std::lock_guard lock(drive_);
    watch_devices();
  }
  shared_.tracer.stop();
}

}  // namespace hvd::core

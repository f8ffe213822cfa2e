/// @file engine.h — the runtime of one rank: its sets, its thread, and callers that drive.
///
/// No state outside the object: a test runs many ranks as threads of one process.
///
/// Process sets.  Each has its own negotiation and its own batches, all stepped
/// by whoever drives; no step waits, so a set that waits for somebody holds up
/// no other.  A rank has one doorbell for all of them.
///
/// Who drives.  Whoever holds drive_ may step.  A caller that waits takes it when
/// it is free; otherwise the engine's own thread does, which sleeps on its doorbell
/// while there is nothing to do (memory/doorbell.h).  An idle rank uses no CPU.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "common/world.h"
#include "core/engine/guard_reports.h"
#include "core/engine/lost_ranks.h"
#include "core/set/process_set.h"
#include "core/set/set_change.h"
#include "core/set/set_table.h"
#include "core/settings/config.h"
#include "recorder/trace/trace_window.h"
#include "recorder/trace/tracer.h"
#include "transport/transport.h"

namespace hvd::core {

class Engine {
 public:
  /// What this rank tells all others before there is an engine.  Transports that bring it along spare them an exchange.
  static std::string introduction(const Config& config);
  /// Collective over the transport's ranks.
  Engine(std::unique_ptr<transport::Transport> transport, const Config& config, gpu::Platform& gpus = gpu::platform());
  ~Engine();
  /// Collective in spirit, but never waits for others: says goodbye, ends what is under way with peer_lost.  Threads
  /// that wait in here come out; all must have done so before the destructor, which calls this too.
  void leave();

  /// The world is over, since a rank of it has died: what is under way ends with peer_lost, and what is submitted
  /// later. Any thread; waits for nobody.
  void revoke(const std::string& why);

  const World& world() const { return world_; }
  /// See hvd_departed.  Any thread.
  bool departed() const { return shared_.departed.load() && !shared_.died.load(); }
  bool threads_multiple() const { return transport_->threads_multiple(); }
  /// The global set.
  ProcessSet& set() { return *global_; }
  gpu::Platform& gpus() { return shared_.gpus; }
  trace::Tracer& tracer() { return shared_.tracer; }
  recorder::StepRecorder& recorder() { return shared_.status.recorder(); }
  /// The world that this is, by its number: for what is recorded.
  void begin_epoch(std::int64_t epoch) {
    recorder().begin_epoch(epoch);
    shared_.recorder.begin_epoch(epoch);
  }
  /// The timeline follows the steps.  @p on  it begins at once, where neither @p steps nor hvdrun say otherwise;
  /// @p start  starts the tracer, from any thread, as long as this engine lives.  Once.
  void follow_steps(std::optional<trace::TraceSteps> steps, bool on, std::function<void()> start);
  OperationTable& operations() { return shared_.operations; }
  /// A living set by its id, the global one too.  Throws Error{usage}.
  std::shared_ptr<const SetInfo> known(int id) const;
  /// Collective over the world.  @p ranks: [size of the set] distinct world ranks; rank i of the set is ranks[i].  The
  /// id is the same on all ranks.  Throws Error: usage, also for the ranks of a living set, on all ranks; unavailable.
  int add_set(std::vector<int> ranks);
  /// Collective over the world.  What is under way in the set ends with an error.
  void remove_set(int id);

  /// ProcessSet::submit().  Where this rank leads the set's node and its thread sleeps, the caller does at once what
  /// costs no more than waking it.
  void submit(ProcessSet& set, std::span<const CheckedRequest> requests, Operation** ops);
  /// False when limit_seconds passed (negative: no limit) and the operation is still under way.
  bool wait(Operation& op, double limit_seconds);
  /// Submits and waits; the operation has ended on return and its handle is the caller's.  Nobody rings this rank's
  /// thread meanwhile: the caller counts as polling from before its ready bit is set.
  Operation& run(ProcessSet& set, const CheckedRequest& request);
  /// As Transport::links.  Any thread.
  std::vector<transport::LinkUse> links();
  /// Throws the Error by which a set of this rank has ended, if one has.  Any thread.
  void check();
  /// The timeline ends, with what GPUs have done so far.
  void stop_timeline();

 private:
  static constexpr std::int64_t look_at_links_ns = 250'000'000;
  static constexpr std::int64_t watch_after_ns = 100'000'000;  ///< no progress for so long: are the peers there?

  void look(ProcessSet& set);
  bool poll_for(Operation& op, WaitTimer& waited);
  bool sleep_for(Operation& op, std::int64_t end_ns);
  void begin_polling();
  void arm(bool on);
  void arrived();
  void nap(std::int64_t limit);
  void end_polling();
  bool drive(const Operation* op, bool& moved);
  bool step();
  bool step(ProcessSet& set, ProcessSet::StepLimit limit = ProcessSet::StepLimit::all);
  bool busy();
  std::int64_t behind_gpu_ns() const;
  void change(SetChange& change);
  void listen();
  void run();
  bool sleep();
  void end_deep_sleep();
  void watch();
  void tell_silent();
  void look_at_links(std::int64_t now);
  void watch_devices();
  void finish_devices();
  void check_stalls();
  void report_wait(std::int64_t now_ns);
  void leave_message();

  std::unique_ptr<trace::TraceWindow> window_;  ///< outlives the recorder, which tells it of steps
  EngineContext shared_;
  World world_;
  const Config config_;
  const bool checks_stalls_;
  GuardReports reports_;
  std::shared_ptr<transport::Transport> transport_;
  std::vector<std::shared_ptr<unsigned char>> arenas_;  ///< of this node's ranks; nullptr: cannot be mapped
  SetTable sets_;
  std::shared_ptr<ProcessSet> global_;
  std::vector<std::shared_ptr<ProcessSet>> mine_;  ///< sets that this rank is in, the global one first; under drive_
  std::unique_ptr<LostRanks> lost_;
  memory::Doorbell* doorbell_ = nullptr;
  bool crowded_ = false;  ///< more ranks than cores on this node
  bool spare_ = false;    ///< two cores a rank
  bool many_nodes_ = false;
  std::atomic<bool> listens_{false};  ///< messages from other nodes may come any time, and no rank rings for them
  bool wakes_ = false;                ///< the transport calls arrived() for them
  unsigned turns_ = 0;
  std::mutex drive_;
  std::atomic<bool> stop_{false};
  bool left_ = false;
  std::int64_t watched_ns_ = 0, stalls_checked_ns_ = 0, links_looked_ns_ = 0;
  std::set<int> silent_;  ///< ranks that do not answer, and have been told of
  bool stalls_ = false;   ///< something is incomplete: look again soon
  int naps_ = 0, idle_sleeps_ = 0;
  std::atomic<bool> deep_{false};  ///< the thread sleeps until somebody rings: it is not watching anybody
  std::thread thread_;
};

}  // namespace hvd::core

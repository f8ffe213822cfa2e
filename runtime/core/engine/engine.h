/// @file engine.h — the runtime of one rank: its sets, its thread, and callers that drive.
///
/// No state outside the object: a test runs many ranks as threads of one process.
///
/// Process sets.  Each set has its own negotiation and batches.  The thread that drives steps all sets.  No step waits,
/// so a set that waits for a rank delays no other set.  A rank has one doorbell for all its sets.
///
/// Driving.  The thread that holds drive_ may step.  A caller that waits takes drive_ when it is free.  Otherwise
/// the engine's own thread drives.  This thread sleeps on its doorbell while there is no work (memory/doorbell.h), so
/// an idle rank uses no CPU.
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
#include "core/status/message_waits.h"
#include "recorder/trace/trace_window.h"
#include "recorder/trace/tracer.h"
#include "transport/transport.h"

namespace hvd::core {

/// Size: it owns the objects of one world, and makes and ends them in order.  The objects' own classes do the work.
class Engine {
 public:
  /// The data that each rank sends to all others at init.  Some transports carry it when they start, which saves an
  /// exchange.
  static std::string introduction(const Config& config);
  /// Collective over the transport's ranks.
  Engine(std::unique_ptr<transport::Transport> transport, const Config& config, gpu::Platform& gpus = gpu::platform());
  ~Engine();
  /// Tells the other ranks that this one leaves, and ends all operations under way with peer_lost.  Waits at most 5 s
  /// for work on GPUs, and 1 s until the message is sent.  Threads that wait in the engine return, and must have
  /// returned before the destructor.  The destructor calls leave() too.
  void leave();

  /// Ends the world, since a rank has died: operations under way and later ones end with peer_lost.  Any thread;
  /// waits for the drive lock only.
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
  /// See hvd_not_finite.  Any thread.
  std::string take_not_finite() { return shared_.not_finite.take(); }
  /// Sets the number of this world, for the records.
  void begin_epoch(std::int64_t epoch) {
    recorder().begin_epoch(epoch);
    shared_.recorder.begin_epoch(epoch);
  }
  /// Begins and ends the timeline with the steps that @p steps or hvdrun name.  If neither names steps, the timeline
  /// begins at once with @p on.  @p start: starts the tracer, from any thread, during the engine's life.  To be called
  /// once.
  void follow_steps(std::optional<trace::TraceSteps> steps, bool on, std::function<void()> start);
  OperationTable& operations() { return shared_.operations; }
  /// The living set with this id, which may be the global one.  Throws Error{usage} if there is none.
  std::shared_ptr<const SetInfo> known(int id) const;
  /// Collective over the world.  @p ranks: [size of the set] distinct world ranks; rank i of the set is ranks[i].  The
  /// id is the same on all ranks.  Throws Error: usage, also for the ranks of a living set, on all ranks; unavailable.
  int add_set(std::vector<int> ranks);
  /// Collective over the world.  Operations under way in the set end with an error.
  void remove_set(int id);

  /// ProcessSet::submit().  In a world of one node, a leader's caller makes one brief step if the leader's thread
  /// sleeps.
  void submit(ProcessSet& set, std::span<const CheckedRequest> requests, Operation** ops);
  /// ProcessSet::capture().  @p ops get operations that have ended.
  void capture(ProcessSet& set, std::span<const CheckedRequest> requests, Operation** ops);
  /// False when limit_seconds passed (negative: no limit) and the operation is still under way.
  bool wait(Operation& op, double limit_seconds);
  /// Submits an operation and waits for its end.  The operation is still under way if limit_seconds passed (negative:
  /// no limit).  The caller gets the handle.  The caller counts as polling before it sets its ready bit, so no rank
  /// rings this rank's thread.
  Operation& run(ProcessSet& set, const CheckedRequest& request, double limit_seconds = -1);
  /// See Transport::links().  Any thread.
  std::vector<transport::LinkUse> links();
  /// Throws the Error with which a set of this rank has ended, if one has.  Any thread.
  void check();
  /// Ends the timeline, after the GPUs' phases so far have been written.
  void stop_timeline();

 private:
  static constexpr std::int64_t look_at_links_ns = 250'000'000;
  static constexpr std::int64_t watch_after_ns =
      100'000'000;  ///< without progress, until the engine checks that the peers live

  void look(ProcessSet& set);
  void tell_leader(ProcessSet& set, Operation& op);
  bool poll_for(Operation& op, WaitTimer& waited);
  bool sleep_for(Operation& op, std::int64_t end_ns);
  void begin_polling();
  void arm(bool on);
  void arm_later();
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
  void look_at_messages(std::int64_t now_ns);
  gpu::DeviceWait device_wait();
  void leave_message();

  std::unique_ptr<trace::TraceWindow> window_;  ///< outlives the recorder, which calls it at each step
  EngineContext shared_;
  World world_;
  const Config config_;
  const StallLimits stall_limits_;
  GuardReports reports_;
  MessageWaits messages_;  ///< of the engine's thread
  std::shared_ptr<transport::Transport> transport_;
  std::vector<std::shared_ptr<unsigned char>> arenas_;  ///< of this node's ranks; nullptr: cannot be mapped
  SetTable sets_;
  std::shared_ptr<ProcessSet> global_;
  std::vector<std::shared_ptr<ProcessSet>> mine_;  ///< sets with this rank, the global one first; under drive_
  std::unique_ptr<LostRanks> lost_;
  memory::Doorbell* doorbell_ = nullptr;
  bool crowded_ = false;  ///< more ranks than cores on this node
  bool spare_ = false;    ///< the host has two cores for each rank
  bool many_nodes_ = false;
  std::atomic<bool> listens_{false};     ///< messages of other nodes may arrive, for which no rank rings
  bool wakes_ = false;                   ///< the transport calls arrived() for such messages
  std::atomic<bool> arms_later_{false};  ///< the transport calls arrived() within a millisecond, to arm
  unsigned turns_ = 0;
  std::mutex drive_;
  std::atomic<bool> stop_{false};
  bool left_ = false;
  std::int64_t watched_ns_ = 0, stalls_checked_ns_ = 0, links_looked_ns_ = 0;
  std::set<int> silent_;  ///< ranks that do not answer, and have been reported
  bool stalls_ = false;   ///< an operation is incomplete: check again soon
  int naps_ = 0, idle_sleeps_ = 0;
  std::atomic<bool> deep_{false};  ///< the thread sleeps until a ring, and watches no peer
  std::thread thread_;
};

}  // namespace hvd::core

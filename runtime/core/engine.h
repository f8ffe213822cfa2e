/// @file engine.h — the runtime of one rank: its sets, its thread, and callers that drive.
///
/// No state outside the object: a test runs many ranks as threads of one process.
///
/// Who drives.  Whoever holds drive_ may step.  A caller that waits takes it when
/// it is free; otherwise the engine's own thread does, which sleeps on its bell
/// while there is nothing to do (memory/wake.h).  An idle rank uses no CPU.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "core/config.h"
#include "core/peers.h"
#include "core/set.h"
#include "core/world.h"
#include "trace/trace.h"
#include "transport/transport.h"

namespace hvd::core {

class Engine {
 public:
  /// Collective over the transport's ranks.
  Engine(std::unique_ptr<transport::Transport> transport, const Config& config);
  /// Collective in spirit, but never waits for others: leaves, ends what is under way with peer_lost.
  ~Engine();

  const World& world() const { return world_; }
  bool threads_multiple() const { return transport_->threads_multiple(); }
  Set& set() { return *set_; }
  trace::Tracer& tracer() { return tracer_; }
  Operations& operations() { return operations_; }

  /// False when limit_seconds passed (negative: no limit) and the operation is still under way.
  bool wait(Operation& op, double limit_seconds);
  /// Submits and waits; the operation has ended on return and its handle is the caller's.  Nobody rings this rank's
  /// thread meanwhile: the caller counts as polling from before its ready bit is set.
  Operation& run(const Prepared& request);
  /// From outside (the launcher knows first): that rank is gone.
  void peer_lost(int rank, const std::string& text);

 private:
  bool poll_for(Operation& op);
  bool sleep_for(Operation& op, std::int64_t end_ns);
  void begin_polling();
  void end_polling();
  bool drive(bool& moved);
  bool step();
  void run();
  bool sleep();
  void watch();
  void check_stalls();
  void leave_message();
  bool crowded() const;

  Operations operations_;
  trace::Tracer tracer_;
  World world_;
  const Config config_;
  std::unique_ptr<transport::Transport> transport_;
  std::vector<std::shared_ptr<unsigned char>> arenas_;  ///< of this node's ranks; nullptr: cannot be mapped
  std::unique_ptr<Set> set_;
  std::unique_ptr<Peers> peers_;
  memory::Bell* bell_ = nullptr;
  bool crowded_ = false, many_nodes_ = false;
  std::mutex drive_;
  std::atomic<bool> stop_{false};
  std::int64_t idle_since_ns_ = 0;  ///< the engine thread's: last time something moved
  std::int64_t stalls_checked_ns_ = 0;
  bool stalls_ = false;  ///< something is incomplete: look again soon
  int naps_ = 0, missed_ = 0;
  std::thread thread_;
};

}  // namespace hvd::core

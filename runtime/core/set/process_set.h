/// @file process_set.h — one process set as one rank sees it: what it has submitted, and the batch under way.
///
/// Its parts: the names and ids (name_table.h), ready bits and records (announcer.h), groups that failed elsewhere
/// (group_failures.h), stand-ins while other ranks have joined (stand_in.h), on a node's lowest rank the leader
/// (leader.h), and the batch (batch.h).
///
/// Two sides.  The submit side (any thread, under mutex_) looks names up and announces operations.  The drive side (one
/// thread at a time, under the engine's drive lock) carries out commands, and on node leaders gathers and publishes.
/// They meet in atomics, and in mutex_ when a command changes names.
#pragma once
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/world.h"
#include "core/batch/batch.h"
#include "core/operation/announcer.h"
#include "core/operation/checked_request.h"
#include "core/operation/group_failures.h"
#include "core/operation/name_table.h"
#include "core/operation/stand_in.h"
#include "core/set/engine_context.h"
#include "core/set/leader.h"
#include "core/settings/config.h"
#include "core/settings/tuning.h"
#include "memory/node.h"
#include "memory/queue.h"

namespace hvd::core {

class ProcessSet {
 public:
  /// @p world, @p transport, @p node: of the set, ranks numbered within it.
  ProcessSet(World world, const Config& config, std::shared_ptr<transport::Transport> transport, memory::Node node,
             EngineContext& shared);
  const World& world() const { return world_; }
  /// Its id, before anything is submitted.
  void give_id(int id) { id_ = id; }
  /// Before anything is submitted.  On the coordinator: as HOROVOD_AUTOTUNE and HVD_AUTOTUNE_FROM say.
  void begin_tuning(const Config& config);
  /// On the set's coordinator, the first time: exchanges between nodes are planned for a network with that round trip.
  void plan_for(std::int64_t round_trip_ns, const Config& config);

  /// Takes all of @p requests or throws (usage: a name is in flight).  ops: [requests.size()].  True when the leader
  /// of this node, local rank 0, must look: this was the last rank of the node to submit something.
  bool submit(std::span<const CheckedRequest> requests, Operation** ops);
  /// Throws the Error of fail_all(), if that was called.  Any thread.
  void check();
  /// Operations of this rank that have not ended.
  int outstanding() const {
    return static_cast<int>(submitted_.load(std::memory_order_relaxed) - ended_.load(std::memory_order_relaxed));
  }

  // Drive side.
  /// brief: no batch that must be streamed, and at most one wake-up.
  enum class StepLimit : bool { all, brief };
  bool step(StepLimit limit = StepLimit::all);
  /// step() would do something now, or must be called again soon though nobody will ring.
  bool busy() const;
  /// What runs its batches: a new set gets its part of the world's device there.
  Batch& batch() { return batch_; }
  bool in_batch() const { return batch_.running(); }
  /// Something runs on the GPU that has been queued by operations which have ended here.
  bool on_device() const { return batch_.on_device(); }
  /// Looks after it.  Throws Error when the device's side has failed.
  void watch_device() { moves_ += batch_.watch_device(); }
  /// Ends every operation under way, and every later one, with @p code.
  void fail_all(int code, const std::string& text);
  /// The set is gone: ends what is under way, and touches the transport no more.
  void close(const std::string& why);
  /// Operations wait here and nothing has moved since the last call.
  bool stuck();
  /// A local rank that has carried out @p commands and is gone: can what is under way here still end without it?
  bool can_end_without(std::uint64_t commands) const;
  /// Like Leader::behind_gpu_ns(); 0 where the set itself is at work.
  std::int64_t behind_gpu_ns() const {
    return leader_ && !batch_.running() && !commands_.waiting() && !announcer_.waits() ? leader_->behind_gpu_ns() : 0;
  }
  Leader* leader() { return leader_.get(); }
  memory::Node& node() { return node_; }
  const memory::Node& node() const { return node_; }
  /// Names under way here, a few of them, for messages.
  std::string names_under_way();
  /// The first of them by the alphabet, the same on all ranks that wait for the same.
  std::string first_name_under_way();
  /// Why everything here ends with an error; empty: it does not.
  std::string broken();
  /// Grows while what is under way here moves, or ends.
  std::uint64_t progress() const { return batch_moves_ + ended_.load(std::memory_order_relaxed); }

 private:
  void throw_if_broken() const;  ///< while mutex_ is held
  // Submit side.
  void mark_ready(std::span<const CheckedRequest> requests);
  std::shared_ptr<gpu::StreamMark> mark_ready(const CheckedRequest& p);
  void bind(const CheckedRequest& p, NameEntry& e, Operation& op);
  bool announce(std::span<const CheckedRequest> requests, std::span<NameEntry* const> entries);
  void trace_submitted(NameEntry& e, std::int64_t dim0);
  void count(std::size_t operations);
  Operation& submit_join(const CheckedRequest& p);
  void announce_join(int what);

  // Drive side.
  bool advance(StepLimit limit);
  bool carry_out(std::uint32_t type);
  void executed();
  void moves(bool now, std::int64_t ns);
  void start_batch(negotiate::ByteReader& r);
  void assign(negotiate::ByteReader& r);
  void evict(negotiate::ByteReader& r);
  void fail(negotiate::ByteReader& r);
  void fail_group(negotiate::ByteReader& r);
  void outdate(negotiate::ByteReader& r);
  void gone(negotiate::ByteReader& r);
  void tune(negotiate::ByteReader& r);
  void measure(std::span<Operation* const> ops, int rounds);
  void joining();
  void stand_in(negotiate::ByteReader& r);
  void joined(negotiate::ByteReader& r);
  void drop_stand_in(std::uint32_t id);
  void end(std::span<Operation* const> ops, int status, const std::string& error);
  void end(Operation& op, int status, const std::string& error) {
    Operation* one = &op;
    end({&one, 1}, status, error);
  }

  const World world_;
  const std::shared_ptr<transport::Transport> transport_;
  memory::Node node_;
  EngineContext& shared_;
  OperationTable& operations_;
  trace::Tracer& tracer_;
  const std::uint32_t ids_;
  int id_ = 0;

  std::mutex mutex_;  ///< guards the submit side: what is declared from here to broken_text_
  NameTable names_;
  Announcer announcer_;
  GroupFailures group_failures_;
  std::vector<Operation*> pending_;                      ///< [ids]: submitted by bit or assigned, not yet ended
  std::vector<std::shared_ptr<gpu::StreamMark>> ready_;  ///< scratch of submit: [of each request on a GPU]
  gpu::LocalGpu* gpu_ = nullptr;                         ///< of the first tensor on one
  bool records_only_ = false;                            ///< from command `joining` to `joined`
  Operation* join_op_ = nullptr;                         ///< this rank has joined, or is about to
  int broken_code_ = 0;                                  ///< of fail_all(), with its text
  std::string broken_text_;

  std::unordered_map<std::uint32_t, std::unique_ptr<StandIn>> stand_ins_;  ///< by id; drive side
  std::atomic<std::uint64_t> submitted_{0};                                ///< written under mutex_
  std::atomic<std::uint64_t> ended_{0};                                    ///< written on the drive side
  std::uint64_t executed_ = 0;                                             ///< commands carried out
  bool moving_ = false;                                                    ///< told of by moves()
  RoundCounter rounds_;
  std::int64_t steps_ = 0;  ///< rounds so far
  memory::CommandReader commands_;
  std::string command_;  ///< body of the command being carried out
  std::unique_ptr<Leader> leader_;
  bool planned_ = false;            ///< plan_for has been called
  std::unique_ptr<Tuning> tuning_;  ///< on the world's coordinator, where asked for
  std::uint64_t moves_ = 0, moves_seen_ = 0;
  std::uint64_t batch_moves_ = 0;  ///< those of batches alone: not what leaders tell each other
  Batch batch_;
};

}  // namespace hvd::core

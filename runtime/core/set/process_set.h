/// @file process_set.h — one rank's view of a process set: the operations it has submitted, and the batch under way.
///
/// Its parts:
/// - name_table.h: names and ids
/// - announcer.h: ready bits and records
/// - group_failures.h: groups that failed on other ranks
/// - stand_in.h: operations of zeros after this rank has joined
/// - leader.h: the leader, on a node's lowest rank
/// - batch.h: the batch under way
///
/// The submit side (any thread, under mutex_) looks names up and announces operations.  The drive side (one thread at a
/// time, under the engine's drive lock) carries out commands.  On node leaders, the drive side also gathers and
/// publishes.  Both sides use atomics, and mutex_ when a command changes names.
#pragma once
#include <functional>
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
#include "core/set/captured_call.h"
#include "core/set/engine_context.h"
#include "core/set/leader.h"
#include "core/set/result_agreement.h"
#include "core/settings/config.h"
#include "core/settings/tuning.h"
#include "core/status/message_waits.h"
#include "memory/node.h"
#include "memory/queue.h"

namespace hvd::core {

/// An operation that has not ended.
struct OperationUnderWay {
  std::string name;  ///< empty: there is none
  std::string what;  ///< kind and tensor; empty: not known, or the name begins with the kind
};

/// Size: two sides with one mutex between them.  A class for each side would need the other side's names, operations
/// and batch in nearly every function.
class ProcessSet {
 public:
  /// @p world, @p transport, @p node: of the set, with the set's numbers of ranks.
  ProcessSet(World world, const Config& config, std::shared_ptr<transport::Transport> transport, memory::Node node,
             EngineContext& shared);
  const World& world() const { return world_; }
  /// Sets the id.  Before the first submit().
  void give_id(int id) { id_ = id; }
  /// Begins to tune as HOROVOD_AUTOTUNE and HVD_AUTOTUNE_FROM say.  On the coordinator, before the first submit().
  void begin_tuning(const Config& config);
  /// Plans exchanges between nodes for a network with this round trip.  On the set's coordinator; only the first call
  /// has an effect.
  void plan_for(std::int64_t round_trip_ns, const Config& config);

  /// Submits all of @p requests, or none.  ops: [requests.size()].  True if this rank was the last of the node to
  /// submit an operation.  Then the node's leader, local rank 0, must step.  Throws Error{usage} if a name is in
  /// flight.
  bool submit(std::span<const CheckedRequest> requests, Operation** ops);
  /// Submits an operation of this set, and waits for its end.
  using RunOne = std::function<Operation&(const CheckedRequest&)>;
  /// Records @p requests in the CUDA graph that is being captured on their stream.  Waits for all ranks of the set:
  /// they compare the call.  Throws Error: usage if a rank cannot record the call, mismatch if the ranks' calls differ.
  void capture(std::span<const CheckedRequest> requests, const RunOne& run);
  /// Throws the Error of fail_all() once that has been called.  Any thread.
  void check();
  /// The number of operations of this rank that have not ended.
  int outstanding() const {
    return static_cast<int>(submitted_.load(std::memory_order_relaxed) - ended_.load(std::memory_order_relaxed));
  }

  // The caller holds the drive lock.
  /// brief: step() runs no batch that must be streamed, and wakes at most one rank.
  enum class StepLimit : bool { all, brief };
  bool step(StepLimit limit = StepLimit::all);
  /// True if step() has work now, or must be called again soon although no rank will ring.
  bool busy() const;
  /// The object that runs this set's batches.  A new set inherits its share of the world's device from there.
  Batch& batch() { return batch_; }
  bool in_batch() const { return batch_.running(); }
  /// True while the GPU runs work of operations that have ended on the host.
  bool on_device() const { return batch_.on_device(); }
  /// Looks for work that the GPU has ended.  Throws Error when the GPU's side has failed.
  void watch_device() {
    const bool any = batch_.watch_device();
    moves_ += any, batch_moves_ += any;
  }
  /// See gpu::SetDevice::wait().
  gpu::DeviceWait device_wait() const { return batch_.device_wait(); }
  /// Ends every operation under way, and every later one, with @p code.
  void fail_all(int code, const std::string& text);
  /// Ends all operations under way with @p why, since the set is removed.  The transport is not used again.
  void close(const std::string& why);
  /// Compares the ranks' results of this node, on its leader, and reports those that differ.
  void compare_results();
  /// Hashes results, and reports a NaN or an infinity in their sums.
  void look_at_results(std::span<Operation* const> ops, std::span<const Backend* const> backends);
  /// True if operations wait and none has moved since the last call.
  bool stuck();
  /// True if all operations under way can still end without a local rank that left after @p commands commands.
  bool can_end_without(std::uint64_t commands) const;
  /// Like Leader::behind_gpu_ns(); 0 while the set itself has work.
  std::int64_t behind_gpu_ns() const {
    return leader_ && !batch_.running() && !commands_.waiting() && !announcer_.waits() ? leader_->behind_gpu_ns() : 0;
  }
  Leader* leader() { return leader_.get(); }
  memory::Node& node() { return node_; }
  const memory::Node& node() const { return node_; }
  /// A few names of operations under way, for messages.
  std::string names_under_way();
  /// The operation under way whose name sorts first.  Ranks that wait for the same operations have the same name.  A
  /// message counts only if @p messages has its name.
  OperationUnderWay first_under_way(const MessageWaits& messages);
  /// The error of fail_all(); empty: the set works.
  std::string broken();
  /// A number that grows while operations move or end.
  std::uint64_t progress() const { return batch_moves_ + ended_.load(std::memory_order_relaxed); }

 private:
  void throw_if_broken() const;  ///< the caller holds mutex_
  // Submit side.
  void mark_ready(std::span<const CheckedRequest> requests);
  std::shared_ptr<gpu::StreamMark> mark_ready(const CheckedRequest& p);
  void check_gpu(gpu::LocalGpu& gpu);
  void bind(const CheckedRequest& p, NameEntry& e, Operation& op);
  bool announce(std::span<const CheckedRequest> requests, std::span<NameEntry* const> entries,
                std::span<Operation* const> ops);
  void tell(wire::AgreementFinding found);
  void trace_submitted(NameEntry& e, std::int64_t dim0);
  void count(std::size_t operations);
  Operation& submit_join(const CheckedRequest& p);
  void announce_join(int what);
  void open_captures(const CheckedRequest& request, const RunOne& run);
  std::vector<CapturedCall> exchange_captured(const CapturedCall& mine, const RunOne& run);

  // The caller holds the drive lock.
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
  const std::uint32_t ids_;  ///< most that the coordinator assigns
  int id_ = 0;

  std::mutex mutex_;  ///< guards the submit side: the members from here to broken_text_
  NameTable names_;
  Announcer announcer_;
  GroupFailures group_failures_;
  std::vector<Operation*> pending_;                      ///< by id: submitted by bit or assigned, not yet ended
  std::vector<std::shared_ptr<gpu::StreamMark>> ready_;  ///< [requests on GPUs] scratch of submit()
  gpu::LocalGpu* gpu_ = nullptr;                         ///< the GPU of the first tensor on a GPU
  bool records_only_ = false;                            ///< from command `joining` to `joined`
  Operation* join_op_ = nullptr;                         ///< this rank has joined, or is about to
  int broken_code_ = 0;                                  ///< of fail_all(), with its text
  std::string broken_text_;

  std::mutex capture_mutex_;                 ///< held during capture(); guards the next two members
  std::uint64_t captured_calls_ = 0;         ///< includes refused calls; the same number on all ranks
  std::shared_ptr<gpu::Captures> captures_;  ///< from the first captured call on

  std::unordered_map<std::uint32_t, std::unique_ptr<StandIn>> stand_ins_;  ///< by id; drive side
  std::atomic<std::uint64_t> submitted_{0};                                ///< written under mutex_
  std::atomic<std::uint64_t> ended_{0};                                    ///< written on the drive side
  std::uint64_t executed_ = 0;                                             ///< commands carried out
  bool moving_ = false;                                                    ///< the value last recorded by moves()
  RoundCounter rounds_;
  std::int64_t steps_ = 0;  ///< rounds so far
  memory::CommandReader commands_;
  std::string command_;  ///< body of the command being carried out
  std::unique_ptr<Leader> leader_;
  bool planned_ = false;            ///< plan_for has been called
  std::unique_ptr<Tuning> tuning_;  ///< on the world's coordinator, if tuning is on
  std::uint64_t moves_ = 0, moves_seen_ = 0;
  std::unique_ptr<ResultAgreement> agreement_;  ///< null: off
  std::uint64_t disagreements_ = 0;             ///< in a row
  std::int64_t disagreed_ns_ = 0;               ///< the time of the last one
  int told_ = 0;                                ///< differences that hvdrun has got
  std::uint64_t batch_moves_ = 0;               ///< moves of batches and GPUs, without messages between leaders
  Batch batch_;
};

}  // namespace hvd::core

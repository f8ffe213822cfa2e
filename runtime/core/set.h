/// @file set.h — one process set as one rank sees it: names, negotiation, the batch under way.
///
/// Two sides.  The submit side (any thread, under mutex_) looks names up and
/// announces operations.  The drive side (one thread at a time, under the
/// engine's drive lock) carries out commands, and on node leaders gathers and
/// publishes.  They meet in atomics, and in mutex_ when a command changes names.
#pragma once
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "core/batch.h"
#include "core/config.h"
#include "core/leader.h"
#include "core/operation.h"
#include "core/rank_status.h"
#include "core/request_key.h"
#include "core/world.h"
#include "memory/node.h"
#include "memory/queue.h"
#include "ops/shm/eager.h"
#include "recorder/tracer.h"

namespace hvd::core {

/// What this rank knows about a name.  What a known tensor needs comes first: one line, and two more to compare the
/// request with.
struct alignas(64) NameEntry {
  Operation* operation = nullptr;           ///< the one in flight
  std::uint32_t id = negotiate::no_slot;    ///< none until the coordinator assigns one
  std::uint32_t slot = negotiate::no_slot;  ///< offset of its eager slots
  std::size_t bytes = 0;                    ///< of the tensor, by its signature, like the next four
  std::size_t elements = 0;
  ops::ReduceFn reduce = nullptr;  ///< allreduce only
  std::uint32_t group_size = 0;    ///< 0: not grouped
  bool fills = true;               ///< its slot: an input of this rank's is needed
  std::atomic<bool> in_flight{false};
  bool chosen = false;         ///< while submit looks for names that come twice
  std::uint8_t round = 0;      ///< parity of the next submit
  NameEntry* after = nullptr;  ///< submitted after this one last time; void unless after_epoch is the set's
  std::uint64_t after_epoch = 0;
  std::string name;
  std::uint64_t submitted_at = 0;  ///< commands that had been carried out
  RequestKey key;                  ///< what the signature was made of
  ops::Scale scale;                ///< by the signature
  trace::Track track;              ///< zeroed when the signature changes
  Signature signature;             ///< last: its unused dimensions are never touched

  NameEntry() { signature.kind = num_kinds; }  // is no operation's
  /// It is what ranks agree on from now on.  @p rank: this one, of @p size.
  void describe(const Signature& s, int rank, int size);
};

/// What a rank that has joined uses in place of an operation of its own.
struct StandIn {
  NameEntry entry;  ///< its operation is null once that has ended
  std::unique_ptr<void, void (*)(void*)> zeros{nullptr, std::free};
};

/// A checked request.
struct CheckedRequest {
  std::string_view name;  ///< empty: make one
  const void* in = nullptr;
  void* out = nullptr;
  std::int64_t dim0 = 0;
  std::vector<std::int64_t> splits;  ///< alltoall: [size of the set]
  cuda::Gpu* gpu = nullptr;          ///< whose memory it is; nullptr: the host's
  cuda::Stream stream = nullptr;     ///< with a GPU: the caller's
  RequestKey key;
  Signature signature;  ///< last: its unused dimensions are never touched

  /// Its size is known only when it is done: the runtime allocates it.
  bool has_result() const {
    const Kind k = signature.operation();
    return k == Kind::allgather || k == Kind::alltoall || k == Kind::reducescatter;
  }
};

/// What the sets of one engine have in common.
struct EngineContext {
  explicit EngineContext(int status_fd = -1) : status(status_fd) {}
  /// Told by the global set: that rank has left, or is lost.
  std::function<void(int rank, const std::string& text, const std::string& names)> gone;
  Batch::Special special;  ///< of the global set
  RankStatus status;
  Operations operations{status};
  trace::Tracer tracer;
  std::uint32_t traced = 0;           ///< parts of batches numbered for the timeline so far
  std::atomic<bool> gpu_busy{false};  ///< a GPU is at work for operations that have ended on the host
  std::atomic<int> outstanding{0};    ///< operations of this rank that have not ended, in all sets
};

class ProcessSet {
 public:
  /// @p world, @p transport, @p node: of the set, ranks numbered within it.
  ProcessSet(World world, const Config& config, std::shared_ptr<transport::Transport> transport, memory::Node node,
             EngineContext& shared);
  const World& world() const { return world_; }

  /// Takes all of @p requests or throws (usage: a name is in flight).  ops: [requests.size()].  True when the leader
  /// of this node, local rank 0, must look: this was the last rank of the node to submit something.
  bool submit(std::span<const CheckedRequest> requests, Operation** ops);
  /// The same for requests as they came, where all of them are known, and are what was asked for under their names the
  /// last time.  @p due: what submit() returns.  False, with nothing done: check them and use submit().
  /// @param group  they are one
  bool submit_again(std::span<const hvd_request> requests, bool group, Operation** ops, bool& due);
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
  Leader* leader() { return leader_.get(); }
  memory::Node& node() { return node_; }
  /// Names under way here, a few of them, for messages.
  std::string names_under_way();
  /// The first of them by the alphabet, the same on all ranks that wait for the same.
  std::string first_name_under_way();
  /// Grows while what is under way here moves, or ends.
  std::uint64_t progress() const { return batch_moves_ + ended_.load(std::memory_order_relaxed); }
  std::string broken();

 private:
  bool advance(StepLimit limit);
  NameEntry& entry(std::string_view name);
  NameEntry& next_entry(std::string_view name);
  void forget_name(const std::string& name);
  void choose(std::span<const CheckedRequest> requests);
  bool recall(std::span<const hvd_request> requests, bool group);
  NameEntry* known(const hvd_request& q);
  void announce(NameEntry& e, Operation& op);
  bool flip();
  void count(std::size_t operations);
  std::shared_ptr<cuda::Mark> mark_ready(cuda::Gpu& gpu, cuda::Stream stream, std::string_view name, int kind);
  void mark_ready(std::span<const hvd_request> requests);
  void tell_place(const NameEntry& e, const Operation& op);
  void send_record(NameEntry& e);
  Operation& submit_join(const CheckedRequest& p);
  void announce_join(int what);
  void trace_submitted(NameEntry& e, std::int64_t dim0);
  bool flush_records();
  bool carry_out(std::uint32_t type);
  void assign(negotiate::ByteReader& r);
  void evict(negotiate::ByteReader& r);
  void joining();
  void stand_in(negotiate::ByteReader& r);
  void joined(negotiate::ByteReader& r);
  void drop_stand_in(std::uint32_t id);
  void fail(negotiate::ByteReader& r);
  void fail_group(negotiate::ByteReader& r);
  void outdate(negotiate::ByteReader& r);
  void forget_seen();
  void refuse_outdated(std::span<const CheckedRequest> requests);
  std::uint64_t when(const NameEntry& e, std::uint64_t executed) const;
  void start_batch(negotiate::ByteReader& r);
  void end(std::span<Operation* const> ops, int status, const std::string& error);
  void end(Operation& op, int status, const std::string& error) {
    Operation* one = &op;
    end({&one, 1}, status, error);
  }
  void executed();
  std::string make_name(const Signature& s);

  const World world_;
  const std::shared_ptr<transport::Transport> transport_;
  memory::Node node_;
  ops::EagerSlots slots_;
  EngineContext& shared_;
  Operations& operations_;
  trace::Tracer& tracer_;
  const std::uint32_t ids_;

  std::mutex mutex_;  ///< guards the names and everything else of the submit side
  struct Hash {       // finds a name without making a string of it
    using is_transparent = void;
    std::size_t operator()(std::string_view name) const { return std::hash<std::string_view>{}(name); }
  };
  std::unordered_map<std::string, std::unique_ptr<NameEntry>, Hash, std::equal_to<>> names_;
  std::vector<NameEntry*> by_id_;     ///< [ids]; changed by commands under mutex_
  std::vector<Operation*> pending_;   ///< [ids]: submitted by bit or assigned, not yet ended
  std::vector<std::uint64_t> flips_;  ///< [words] scratch of submit: zero but while it runs
  std::uint32_t words_ = 0;           ///< of flips_, in use
  std::string outbox_;                ///< records that did not fit the queue
  std::atomic<bool> outbox_waits_{false};
  std::uint64_t made_names_[num_kinds] = {};
  std::vector<NameEntry*> chosen_;                  ///< scratch of submit: the entries of its requests
  std::vector<std::shared_ptr<cuda::Mark>> ready_;  ///< scratch of submit: [of each request on a GPU]
  NameEntry* last_ = nullptr;                       ///< submitted last
  cuda::Gpu* gpu_ = nullptr;                        ///< of the first tensor on one
  std::uint64_t erased_ = 0;                        ///< names that were ever forgotten
  bool records_only_ = false;                       ///< from command `joining` to `joined`
  Operation* join_op_ = nullptr;                    ///< this rank has joined, or is about to
  std::unordered_map<std::uint32_t, std::unique_ptr<StandIn>> stand_ins_;  ///< by id; drive side
  /// A group that failed on other ranks, because of an operation of this one that was in no such group.  Until the
  /// caller has seen that (and released the operation), what it submits counts as from before: a program that submits
  /// tensor by tensor must not wait for ever for those that belonged to the group on the other ranks.
  struct Unseen {
    std::uint64_t command, group;
    std::int64_t handle;
    std::string text;
  };
  std::vector<Unseen> unseen_;
  struct Outdated {
    std::uint64_t command, group;
  };
  std::unordered_map<std::string, Outdated, Hash, std::equal_to<>> outdated_;  ///< by command `outdate`, the last
  std::int64_t failed_handle_ = 0;    ///< ended by the last command `fail`, until it is released
  std::uint64_t failed_command_ = 0;  ///< its number
  int broken_code_ = 0;
  std::string broken_text_;

  std::atomic<std::uint64_t> submitted_{0};  ///< written under mutex_
  std::atomic<std::uint64_t> ended_{0};      ///< written on the drive side
  std::uint64_t executed_ = 0;
  RoundCounter rounds_;
  std::int64_t steps_ = 0;  ///< rounds so far
  memory::CommandReader commands_;
  std::string command_;  ///< body of the command being carried out
  std::unique_ptr<Leader> leader_;
  std::uint64_t moves_ = 0, moves_seen_ = 0;
  std::uint64_t batch_moves_ = 0;  ///< those of batches alone: not what leaders tell each other
  Batch batch_;
};

}  // namespace hvd::core

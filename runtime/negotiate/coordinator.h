/// @file coordinator.h — decides for one process set which operations run, when, and in which order.
///
/// The coordinator is pure.  Its caller reports the members' announcements, gets the commands to publish, and moves the
/// bytes.  The coordinator runs on the set's lowest rank.
///
/// Two speeds.  Every rank announces a name without an id by a record.  The coordinator compares the records, assigns
/// an id (command `assign`) and runs the operation.  From then on a rank announces the operation by one bit, "id 17 is
/// ready".  On several nodes the tree of leaders (tree.h) merges records and bits on their way here.  A record for a
/// name that has an id means that some rank's tensor changed.  The coordinator then evicts the id, and all ranks send
/// records.  An evicted id is used again only when all members have carried out the eviction.
///
/// Room for names.  The number of names that keep an id has a limit.  At the limit, a new name takes the id of the name
/// that was used longest ago.  When such a name comes again, the limit doubles, up to `capacity`.  So a step of 100 000
/// tensors soon keeps all its names.  Names that never come again take no more memory than 1 024 names.
///
/// Fusion.  Operations that become ready while a batch is under way are collected, and run as one batch.  A batch on
/// GPUs counts as over once it is queued.  So a few tensors on GPUs are held, if no caller waits for them, for hold_ns
/// at most.  This hold applies only within hold_ns of the last batch on GPUs, or while the GPU works on that batch.
///
/// Offers (coordinator_offers.cc).  Between two nodes, a small sum needs one trip instead of two.  When the
/// coordinator's node has announced small tensors, its leader sends the other leader an offer.  The offer contains the
/// batch of these tensors, and the node's parts.  The other leader takes the offer when it has announced the same
/// tensors with its own parts.  It then runs the batch without a command.  The announcement tells the coordinator that
/// the offer is taken.  While an offer is open, the coordinator publishes no other command, so both nodes have the same
/// sequence.  If there is other work, the leader withdraws the offer.  The coordinator then waits until the other
/// leader has taken or declined the offer.
///
/// Join.  The first rank that wants to join ends the use of ids.  The coordinator evicts all ids that are not
/// ready to run, and publishes `joining`.  From then on every announcement is a record, and a rank's records keep their
/// order.  So a rank's record "has joined" follows its records of all operations under way.  An operation is complete
/// when all ranks that have not joined have announced it.  This mode is slow, but lasts only for the end of an epoch.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/tuned_settings.h"
#include "negotiate/command.h"
#include "negotiate/mismatch.h"

namespace hvd::negotiate {

struct CoordinatorOptions {
  int ranks = 1;                  ///< members of the set
  std::vector<int> world_ranks;   ///< [ranks] their numbers in messages; empty: the members' own numbers
  std::uint32_t ids = 2048;       ///< number of ids, and of ready bits on a rank's board
  std::uint32_t capacity = 1024;  ///< limit of the names that keep an id; HOROVOD_CACHE_CAPACITY
  std::int64_t fusion_bytes = 128 << 20;
  std::int64_t hold_ns = 1000000;     ///< longest hold for fusion
  std::size_t eager_bytes = 0;        ///< a rank's memory for the slots of one parity; 0: no eager tensors
  std::size_t eager_limit = 8 << 10;  ///< largest eager tensor, in bytes.  Tensors above 8 KiB get half of all slots
  std::int64_t eager_work = 8 << 20;  ///< largest product of ranks and bytes of an eager batch
  bool many_nodes = false;            ///< only allreduces whose nodes' parts have arrived are eager
};

/// Size: the tables of one state machine.  Every command reads or changes several of them, and they must agree.
class Coordinator {
 public:
  using Publish = std::function<void(Command, std::string_view body)>;
  Coordinator(CoordinatorOptions options, Publish publish);

  /// Call it when all members have submitted @p id.  @p parts: the parts of all nodes have arrived with the bits
  /// (node_parts.h).
  void ready(std::uint32_t id, bool parts = false) {
    if (!live(id)) return;  // evicted meanwhile: the members send records
    ids_[id].parts = parts;
    candidate(id);
  }
  /// The ranks of @p ranks announce @p name.  These ranks had carried out @p executed commands when they announced the
  /// name.
  void record(const RankSet& ranks, std::uint64_t executed, const Signature& signature, const std::string& name);
  /// Every member has carried out the first @p commands commands.
  void executed(std::uint64_t commands);
  /// Fails operations of different kinds under one caller's name that wait for each other's ranks.  If any of them has
  /// an id, this call only evicts the id, and a later call fails the operations.
  /// @param names  the full names of these operations, which begin with the kind
  void refuse_crossed(const std::vector<std::string>& names);
  void gone(int rank, std::uint32_t code, const std::string& text);
  /// Changes the settings of all ranks, from the next batch on.
  void tune(const TunedSettings& settings);
  /// @name Offers, between two nodes
  /// @{
  /// Opens an offer.  @p ids: ascending; only this node has announced them, with parts.  @p here: see decide(). Returns
  /// the body of the batch to offer; nullopt: no offer is possible now.
  std::optional<std::string> offer(std::uint64_t here, std::span<const std::uint32_t> ids);
  /// The ids of the open offer; empty: no offer is open.  While an offer is open, the caller calls neither ready(),
  /// record(), executed() nor decide().
  const std::vector<std::uint32_t>& offered() const { return offered_; }
  /// True if a call waits for the end of the offer.
  bool wants_end_of_offer() const { return tune_after_offer_.has_value() || wants_end_of_offer_; }
  /// Ends the open offer.  @p taken: publishes its batch, which the other node has published already.
  void end_offer(bool taken);
  /// @}
  /// Tensors that get an id from now on are eager up to @p bytes bytes.
  void limit_eager(std::size_t bytes) { options_.eager_limit = bytes; }
  /// Publishes the operations that can run now.  Returns true if it published any command.
  /// @param here    the number of commands that all members of this node have carried out
  /// @param now_ns  returns the time; called only when an operation may be held
  /// @param gpu     waited_for(): a caller may wait for an operation; works(): the GPU still runs its last batch.  Both
  ///                are called only while a few tensors on GPUs are ready
  template <class Now, class Gpu>
  bool decide(std::uint64_t here, Now&& now_ns, Gpu&& gpu) {
    while (!under_way_.empty() && under_way_.front() <= here) under_way_.pop_front();
    const bool assigned = !agreed_.empty() && assign_waiting();
    const bool on_gpu = !candidates_.empty() && ids_[candidates_.front()].on_gpu;
    const std::int64_t now = on_gpu || (!under_way_.empty() && !candidates_.empty()) ? now_ns() : 0;
    behind_gpu_ = under_way_.empty() && few_on_gpu() && !gpu.waited_for() && (now < next_on_gpu_ || gpu.works());
    return decide_at(now, assigned);
  }
  template <class Now>
  bool decide(std::uint64_t here, Now&& now_ns) {
    return decide(here, now_ns, NoGpu());
  }
  /// Nanoseconds for which held operations may still wait for the GPU.  0: no operation waits for the GPU alone.
  std::int64_t behind_gpu_ns(std::int64_t now_ns) const {
    if (!behind_gpu_ || candidates_.empty()) return 0;
    const std::int64_t until = now_ns < next_on_gpu_ ? next_on_gpu_ : held_since_ + options_.hold_ns;
    return std::max<std::int64_t>(until - now_ns, 1);
  }

  /// True while operations are held back.  The caller must then call decide() again soon.
  bool holding() const { return !candidates_.empty() || !agreed_.empty() || all_joined(); }
  std::uint64_t published() const { return published_; }
  /// The number of failed groups and names that the coordinator still knows.  For tests.
  std::size_t known_failures() const { return poisoned_.size() + outdated_.size(); }
  bool live(std::uint32_t id) const { return id < ids_.size() && ids_[id].live; }
  const std::string& name(std::uint32_t id) const { return tensors_[id].name; }
  /// Calls f(name, ranks) for each name that only some ranks have announced by records.  Also calls f(join_text, ranks)
  /// while only some ranks have joined.  A rank that has joined counts as one that has announced every name.
  template <class F>
  void incomplete(F&& f) const {
    for (const auto& [name, claims] : announced_) f(name, here(claims));
    if (joining_ && !all_joined() && !joined_.empty()) f(join_text, joined_);
  }

 private:
  struct Id {  // only the fields that a batch of known tensors needs: a thousand ids take 32 KiB
    bool live = false;
    bool fresh = false;    ///< announced by record: its slot is not filled
    bool parts = false;    ///< with several nodes: the parts of all nodes are here
    bool grouped = false;  ///< its signature has a group
    bool on_gpu = false;
    bool chosen = false;   ///< in candidates_
    bool passing = false;  ///< its kind or name does not come again: the id is evicted after its batch
    std::uint32_t slot = no_slot;
    std::int64_t bytes = 0;
    std::uint64_t used = 0;  ///< number of the last `batch` command with this id, for eviction
  };
  struct TensorInfo {
    std::string name;
    std::uint64_t group = 0;
    std::uint32_t group_size = 0;  ///< 0: in no group
  };
  struct NoGpu {
    bool waited_for() const { return true; }
    bool works() const { return false; }
  };
  struct Group {
    std::vector<std::uint32_t> ready;
  };

  void publish(Command command, ByteWriter& w);
  std::string batch_body(std::span<const std::uint32_t> ids, bool eager);
  void join(const RankSet& ranks, bool has);
  bool all_joined() const { return joining_ && joined_.count() == options_.ranks; }
  /// The ranks that have announced an operation, and those that have joined.
  RankSet here(const Announcements& claims) const {
    RankSet ranks = claims.ranks();
    ranks.merge(joined_);
    return ranks;
  }
  std::string cannot_stand_in(const std::string& name, const Signature& s, const RankSet& absent) const;
  void fail(std::uint32_t code, const std::string& name, const std::vector<Announcement>& claims,
            const std::string& text);
  bool decide_at(std::int64_t now_ns, bool any);
  bool hold(std::int64_t now_ns);
  void settle(const std::string& name, std::vector<Announcement>& claims);
  void fail_group(std::uint64_t group, std::uint32_t size, const std::string& text);
  void outdate(const std::vector<std::string>& names, std::uint64_t group);
  void forget_old_failures();
  bool outdated(std::uint64_t executed, const Signature& signature, const std::string& name);
  void evict(std::uint32_t id);
  bool evict_oldest();
  void find_oldest();
  std::uint32_t& pushed_out(const std::string& name);
  bool make_room(const std::string& name);
  bool no_id_left() const { return free_.empty() && ids_.size() == options_.ids; }
  std::uint32_t take_id();
  bool in_group_under_way(std::uint32_t id) const;
  bool assign_waiting();
  void candidate(std::uint32_t id) {
    if (ids_[id].grouped) return grouped_candidate(id);
    ids_[id].chosen = true;
    candidates_.push_back(id);
  }
  void grouped_candidate(std::uint32_t id);
  std::uint32_t take_slot(std::int64_t bytes);
  void publish_batch(const std::vector<std::uint32_t>& ids, bool eager);
  bool few_on_gpu() const;
  bool eager_now(const Id& id) const { return id.slot != no_slot && !id.fresh && (id.parts || !options_.many_nodes); }

  CoordinatorOptions options_;
  Publish publish_;
  std::vector<Id> ids_;                                          ///< that have been in use
  std::deque<TensorInfo> tensors_;                               ///< [ids_] further facts about each id
  std::vector<std::uint32_t> free_;                              ///< of ids_, those that can be used again
  std::deque<std::pair<std::uint64_t, std::uint32_t>> evicted_;  ///< (number of the command `evict`, id): not free yet
  std::unordered_map<std::string, std::uint32_t> id_of_;
  std::unordered_map<std::string, Announcements> announced_;
  std::deque<std::pair<std::string, Signature>> agreed_;  ///< checked operations that wait for a free id
  std::unordered_map<std::uint64_t, Group> groups_;
  /// A failed group.  Other ranks' operations under the same names, outside the group, end too: the group's ranks will
  /// not submit them.
  struct Failure {
    std::uint64_t command;  ///< the command `fail_group`, which has ended all operations under way in the group
    std::uint64_t cause;    ///< the command `fail` before it: a rank that has carried out fewer commands did not know
    std::uint32_t size;
    std::string text;
  };
  std::unordered_map<std::uint64_t, Failure> poisoned_;  ///< by group
  /// By name: the `cause` of the last failure.  Older announcements of the name have ended with the failed group.
  std::unordered_map<std::string, std::uint64_t> outdated_;
  /// The entries of one failure in poisoned_ and outdated_.
  struct FailureRecord {
    std::uint64_t command, cause, group;
    std::vector<std::string> names;
  };
  /// Limits of failures_ and outdated_.  Beyond them the coordinator forgets the oldest failures.  A rank that
  /// announces such an operation later is reported as stalled.
  static constexpr std::size_t most_failures = 1024, most_outdated = 16 << 10;
  std::deque<FailureRecord> failures_;  ///< the oldest first
  std::uint64_t failed_ = 0;            ///< number of the last command `fail`
  std::vector<std::uint32_t> candidates_, eager_, streamed_;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> oldest_;  ///< (used, id); the last is the next to evict
  bool none_to_evict_ = false;           ///< since the last batch: all ids are ready to run, or in a group under way
  std::uint32_t limit_;                  ///< names that keep an id now; at most options_.capacity
  std::vector<std::uint32_t> pushed_;    ///< hashes of names that were pushed out; the hash determines its place
  std::vector<std::uint64_t> batch_;     ///< [ids_ / 64] scratch, all 0 between uses
  std::deque<std::uint64_t> under_way_;  ///< numbers of the batches that this node has not carried out
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> free_slots_;  ///< offsets of free slots, by stride
  std::size_t slots_used_ = 0;
  std::uint32_t live_ = 0;
  std::uint64_t published_ = 0, executed_ = 0, last_batch_ = 0;
  std::int64_t held_since_ = 0;
  std::int64_t next_on_gpu_ = 0;  ///< from then on a few tensors on GPUs may run without a waiting caller
  bool behind_gpu_ = false;       ///< at the last decide(): operations were held for the GPU
  bool joining_ = false;
  RankSet joined_;
  int last_joined_ = -1;
  std::vector<std::uint32_t> offered_;  ///< ids of the open offer
  std::optional<TunedSettings> tune_after_offer_;
  bool wants_end_of_offer_ = false;
};

}  // namespace hvd::negotiate

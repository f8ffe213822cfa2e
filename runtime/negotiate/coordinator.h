/// @file coordinator.h — decides what runs, when and in which order, for one process set.
///
/// Pure: it is told what the members announced and says which commands to publish;
/// who carries the bytes is not its business.  It lives on the set's lowest rank.
///
/// Two speeds.  A name without an id comes as a record from every rank, is
/// checked, gets an id (command `assign`) and runs.  From then on "id 17 is ready"
/// is one bit; on several nodes the tree of leaders (tree.h) merges records and
/// bits on their way here.  A record for a name that has an id means
/// that somebody's tensor changed: the id is evicted, everybody sends records.
/// An evicted id is used again only when all members have carried out the eviction.
///
/// Fusion.  What becomes ready while a batch is under way gathers, and runs as one.  A batch on GPUs is over when it is
/// queued.  So a few tensors on GPUs are held for hold_ns at most, if no caller waits for them.  They are held only
/// within hold_ns of the last batch on GPUs, or while the GPU still works on it.
///
/// Join.  The first rank that wants to join ends the use of ids: all are evicted,
/// the command `joining` goes out, and every announcement is a record that keeps its
/// place among those of its rank.  So a rank's record that it has joined comes
/// behind all that it had under way, and an operation is complete when all others
/// have announced it.  Slow, but it lasts for the end of an epoch only.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
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
  std::vector<int> world_ranks;   ///< [ranks]: what messages call them; empty: the same
  std::uint32_t ids = 2048;       ///< bits on the boards
  std::uint32_t capacity = 1024;  ///< names that keep an id; HOROVOD_CACHE_CAPACITY
  std::int64_t fusion_bytes = 128 << 20;
  std::int64_t hold_ns = 1000000;     ///< longest hold for fusion
  std::size_t eager_bytes = 0;        ///< a rank's memory for slots, of one parity; 0: no eager tensors
  std::size_t eager_limit = 8 << 10;  ///< largest eager tensor
  std::int64_t eager_work = 8 << 20;  ///< largest ranks * bytes of an eager batch
  bool many_nodes = false;            ///< eager are only allreduces whose nodes' parts have come along
};

class Coordinator {
 public:
  using Publish = std::function<void(Command, std::string_view body)>;
  Coordinator(CoordinatorOptions options, Publish publish);

  /// All members have submitted @p id.  @p parts: those of all nodes have come along (node_parts.h).
  void ready(std::uint32_t id, bool parts = false) {
    if (!live(id)) return;  // evicted meanwhile: records will come
    ids_[id].parts = parts;
    candidate(id);
  }
  /// @p ranks, which had carried out @p executed commands, announce @p name.
  void record(const RankSet& ranks, std::uint64_t executed, const Signature& signature, const std::string& name);
  /// Every member has carried out this many commands.
  void executed(std::uint64_t commands);
  /// Fails operations of different kinds that have one caller's name and wait for each other's ranks.  An id among
  /// them is evicted first, then a later call fails them.  @p names: of these operations.
  void refuse_crossed(const std::vector<std::string>& names);
  void gone(int rank, std::uint32_t code, const std::string& text);
  /// From the next batch on, on all ranks.
  void tune(const TunedSettings& settings);
  /// Publishes what can run now.  True when it published anything.
  /// @param here    commands that this node's members have carried out
  /// @param now_ns  called only when something may be held
  /// @param gpu     waited_for(): a caller may wait; works(): the GPU still runs its last batch.  Asked only while a
  ///                few tensors on GPUs are ready
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
  /// Nanoseconds that held operations may still wait behind a GPU.  0: none waits for a GPU alone.
  std::int64_t behind_gpu_ns(std::int64_t now_ns) const {
    if (!behind_gpu_ || candidates_.empty()) return 0;
    const std::int64_t until = now_ns < next_on_gpu_ ? next_on_gpu_ : held_since_ + options_.hold_ns;
    return std::max<std::int64_t>(until - now_ns, 1);
  }

  /// Operations are held back: decide() must be called again soon.
  bool holding() const { return !candidates_.empty() || !agreed_.empty() || all_joined(); }
  std::uint64_t published() const { return published_; }
  /// Failed groups and their names that it still knows: for tests.
  std::size_t known_failures() const { return poisoned_.size() + outdated_.size(); }
  bool live(std::uint32_t id) const { return id < ids_.size() && ids_[id].live; }
  const std::string& name(std::uint32_t id) const { return tensors_[id].name; }
  /// Calls f(name, ranks) for names that only these ranks have announced by records, and for the join while only
  /// some ranks have joined.  A rank that has joined counts as ready.
  template <class F>
  void incomplete(F&& f) const {
    for (const auto& [name, claims] : announced_) f(name, here(claims));
    if (joining_ && !all_joined() && !joined_.empty()) f(join_text, joined_);
  }

 private:
  struct Id {  // what a batch of known tensors needs, and nothing else: a thousand of them are 32 KiB
    bool live = false;
    bool fresh = false;    ///< announced by record: its slot is not filled
    bool parts = false;    ///< several nodes: their parts are here
    bool grouped = false;  ///< by its signature
    bool on_gpu = false;
    bool passing = false;  ///< of a kind, or with a name, that never comes again: evicted after its batch
    std::uint32_t slot = no_slot;
    std::int64_t bytes = 0;
    std::uint64_t used = 0;  ///< number of the last batch with it, for eviction
  };
  struct TensorInfo {
    std::string name;
    Signature signature;
  };
  struct NoGpu {
    bool waited_for() const { return true; }
    bool works() const { return false; }
  };
  struct Group {
    std::vector<std::uint32_t> ready;
  };

  void publish(Command command, ByteWriter& w);
  void join(const RankSet& ranks, bool has);
  bool all_joined() const { return joining_ && joined_.count() == options_.ranks; }
  /// The ranks for which nobody needs to wait any more.
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
  bool in_group_under_way(std::uint32_t id) const;
  bool assign_waiting();
  void candidate(std::uint32_t id) {
    if (ids_[id].grouped)
      grouped_candidate(id);
    else
      candidates_.push_back(id);
  }
  void grouped_candidate(std::uint32_t id);
  std::uint32_t take_slot(std::int64_t bytes);
  void publish_batch(const std::vector<std::uint32_t>& ids, bool eager);
  bool few_on_gpu() const;
  bool eager_now(const Id& id) const { return id.slot != no_slot && !id.fresh && (id.parts || !options_.many_nodes); }

  CoordinatorOptions options_;
  Publish publish_;
  std::vector<Id> ids_;
  std::vector<TensorInfo> tensors_;  ///< the same by the same index
  std::vector<std::uint32_t> free_;
  std::deque<std::pair<std::uint64_t, std::uint32_t>> evicted_;  ///< (command number, id): not yet free again
  std::unordered_map<std::string, std::uint32_t> id_of_;
  std::unordered_map<std::string, Announcements> announced_;
  std::deque<std::pair<std::string, Signature>> agreed_;  ///< waiting for a free id
  std::unordered_map<std::uint64_t, Group> groups_;
  /// A group that has failed.  This command has ended all that its ranks had under way in it.  Other ranks' operations
  /// under the same names, outside the group, end too, since no rank will join them.
  struct Failure {
    std::uint64_t command;
    std::uint64_t cause;  ///< the command `fail` that it began with: before it, nobody knew
    std::uint32_t size;
    std::string text;
  };
  std::unordered_map<std::uint64_t, Failure> poisoned_;  ///< by group
  /// By name: the `cause` of the last failure.  Announcements from before it have ended with the failed group.
  std::unordered_map<std::string, std::uint64_t> outdated_;
  /// What a failure has put into poisoned_ and outdated_, in sequence.
  struct FailureRecord {
    std::uint64_t command, cause, group;
    std::vector<std::string> names;
  };
  /// Limits of poisoned_ and outdated_.  Beyond them the oldest records go.  A rank that still holds the handle of such
  /// a failed operation, and announces it, is reported as stalled.
  static constexpr std::size_t most_failures = 1024, most_outdated = 16 << 10;
  std::deque<FailureRecord> failures_;
  std::uint64_t failed_ = 0;  ///< the last command `fail`
  std::vector<std::uint32_t> candidates_, eager_, streamed_;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> oldest_;  ///< (used, id) of a while ago: whom to evict next
  std::vector<std::uint64_t> batch_;                             ///< [ids / 64] scratch, all zero between uses
  std::deque<std::uint64_t> under_way_;  ///< numbers of the batches that this node has not carried out
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> free_slots_;  ///< by stride
  std::size_t slots_used_ = 0;
  std::uint32_t live_ = 0;
  std::uint64_t published_ = 0, executed_ = 0, last_batch_ = 0;
  std::int64_t held_since_ = 0;
  std::int64_t next_on_gpu_ = 0;  ///< a few tensors on GPUs may begin from then on, though nobody waits
  bool behind_gpu_ = false;       ///< at the last decide()
  bool joining_ = false;
  RankSet joined_;
  int last_joined_ = -1;
};

}  // namespace hvd::negotiate

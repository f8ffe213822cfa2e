/// @file conductor.h — decides what runs, when and in which order, for one process set.
///
/// Pure: it is told what the members announced and says which orders to publish;
/// who carries the bytes is not its business.  It lives on the set's lowest rank.
///
/// Two speeds.  A name without an id comes as a record from every rank, is
/// checked, gets an id (order `assign`) and runs.  From then on a node says
/// "id 17 is ready here" with one bit.  A record for a name that has an id means
/// that somebody's tensor changed: the id is evicted, everybody sends records.
/// An evicted id is used again only when all members have carried out the eviction.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "negotiate/mismatch.h"
#include "negotiate/order.h"

namespace hvd::negotiate {

struct ConductorOptions {
  int ranks = 1;  ///< members of the set
  int nodes = 1;
  std::uint32_t ids = 2048;       ///< bits on the boards
  std::uint32_t capacity = 1024;  ///< names that keep an id; HOROVOD_CACHE_CAPACITY
  std::int64_t fusion_bytes = 128 << 20;
  std::int64_t hold_ns = 1000000;     ///< longest hold for fusion
  std::size_t eager_bytes = 0;        ///< a rank's memory for slots; 0: no eager tensors
  std::size_t eager_limit = 8 << 10;  ///< largest eager tensor
  std::int64_t eager_work = 8 << 20;  ///< largest ranks * bytes of an eager batch
};

/// Who has not submitted what; for the stall check.
struct Straggler {
  std::string name;
  std::vector<int> missing;  ///< ranks that have sent no record; empty when it is about nodes
  std::vector<int> nodes;    ///< nodes that are not ready
};

class Conductor {
 public:
  using Publish = std::function<void(Order, std::string_view body)>;
  Conductor(ConductorOptions options, Publish publish);

  /// All members of @p node have submitted @p id.
  void ready(int node, std::uint32_t id);
  void record(int rank, const Record& record, std::int64_t now_ns);
  /// Every member has carried out this many orders.
  void executed(std::uint64_t orders);
  void gone(int rank, std::uint32_t code, const std::string& text);
  /// Publishes what can run now.  @p under_way: members still work on the last batch.  True when it published anything.
  bool decide(bool under_way, std::int64_t now_ns);

  /// Operations are held back: decide() must be called again soon.
  bool holding() const { return !candidates_.empty() || !agreed_.empty(); }
  std::uint64_t published() const { return published_; }
  std::uint64_t last_batch() const { return last_batch_; }
  bool live(std::uint32_t id) const { return id < ids_.size() && ids_[id].live; }
  const std::string& name(std::uint32_t id) const { return ids_[id].name; }
  /// Names that some ranks have announced by records, or all of some nodes by bits, but not all.
  std::vector<Straggler> incomplete() const;

 private:
  struct Id {
    bool live = false, grouped_ready = false;
    int nodes_ready = 0;
    std::vector<bool> ready_at;  ///< [nodes] where it is ready; only kept when there are several
    std::string name;
    Signature signature;
    std::int64_t bytes = 0;
    std::uint32_t slot = no_slot;
    std::uint64_t used = 0;  ///< number of the last batch with it, for eviction
    bool fresh = false;      ///< announced by record: its slot is not filled
  };
  struct Announced {
    std::vector<Claim> claims;
    std::int64_t since_ns = 0;
  };
  struct Group {
    std::vector<std::uint32_t> ready;
  };

  void publish(Order order, Writer& w);
  void settle(const std::string& name, Announced& announced);
  void fail_group(std::uint64_t group, const std::string& text);
  void evict(std::uint32_t id);
  bool evict_oldest();
  bool assign_waiting();
  void candidate(std::uint32_t id);
  std::uint32_t take_slot(std::int64_t bytes);
  void publish_batch(const std::vector<std::uint32_t>& ids, bool eager);
  bool eager_now(const Id& id) const { return id.slot != no_slot && !id.fresh; }

  ConductorOptions options_;
  Publish publish_;
  std::vector<Id> ids_;
  std::vector<std::uint32_t> free_;
  std::deque<std::pair<std::uint64_t, std::uint32_t>> evicted_;  ///< (order number, id): not yet free again
  std::unordered_map<std::string, std::uint32_t> id_of_;
  std::unordered_map<std::string, Announced> announced_;
  std::deque<std::pair<std::string, Signature>> agreed_;  ///< waiting for a free id
  std::unordered_map<std::uint64_t, Group> groups_;
  std::unordered_map<std::uint64_t, std::uint64_t> poisoned_;  ///< group -> order number of its failure
  std::vector<std::uint32_t> candidates_, eager_, streamed_;
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> free_slots_;  ///< by stride
  std::size_t slots_used_ = 0;
  std::uint32_t live_ = 0;
  std::uint64_t published_ = 0, executed_ = 0, last_batch_ = 0;
  std::int64_t held_since_ = 0;
};

}  // namespace hvd::negotiate

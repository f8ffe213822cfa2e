/// @file tree.h — a node leader's place in the tree of leaders: what it merges on the way up, what passes on the way
/// down.
///
/// Pure: it is told what arrived and says what to send; who carries the bytes
/// (core/set/leader.h, the simulator) is not its business.  Nodes are the vertices of
/// a k-ary heap, node 0, where the coordinator is, its root.
///
/// Up.  An id is passed on when this node and all children have it: one bit.
/// Records of a name are held until the whole subtree has sent one, so that equal
/// ones travel as one with a set of ranks; different ones travel side by side.
/// A record for a name that has an id is passed on at once: it is what makes the
/// coordinator evict the id, and the others answer with records only then.
/// A node's part of a small tensor travels along with its bit (node_parts.h), where every node of the subtree has sent
/// one and they are few bytes; else the bit goes alone.
/// Down.  Commands pass unchanged, in sequence, and a leader sees each before its
/// subtree does: that is why what is merged here is never of two different rounds.
///   - A stale bit (sent before its sender saw `evict`) finds the id dead, or is
///     wiped by the `assign` that uses the id anew: the coordinator assigns only
///     when all members have carried out the eviction, and what a member says
///     about that comes after its stale bits.
///   - While somebody joins (command `joining` to `joined`) records pass at once.
///   - A stale record of a failed group is told by the number of commands that its
///     sender had carried out, here as on the coordinator.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "negotiate/command.h"
#include "negotiate/coordinator.h"
#include "negotiate/mismatch.h"
#include "negotiate/node_parts.h"
#include "negotiate/rankset.h"

namespace hvd::negotiate {

/// The k-ary heap.
struct TreeShape {
  int nodes = 1, arity = 4;
  int parent(int n) const { return (n - 1) / arity; }
  int first_child(int n) const { return std::min(nodes, n * arity + 1); }
  int end_child(int n) const { return std::min(nodes, n * arity + arity + 1); }
  /// Calls f(first, last) for the nodes of n's subtree, level by level.
  template <class F>
  void subtree(int n, F&& f) const {
    for (std::int64_t first = n, last = n; first < nodes; first = first * arity + 1, last = last * arity + arity)
      f(static_cast<int>(first), static_cast<int>(std::min<std::int64_t>(last, nodes - 1)));
  }
};

/// A rank that has ended.
struct Departure {
  int rank = 0;
  std::uint32_t code = 0;
  std::string text;
};

class TreeNode {
 public:
  /// @param ranks  [nodes] the ranks of each node
  TreeNode(TreeShape shape, int node, const std::vector<std::vector<int>>& ranks, std::uint32_t ids);

  int parent() const { return shape_.parent(node_); }
  int first_child() const { return shape_.first_child(node_); }
  int end_child() const { return shape_.end_child(node_); }

  // What this node's own members announce.
  void ready(std::uint32_t id) { ready(0, id); }
  /// Before ready(id): this node's part of the tensor.
  void part(std::uint32_t id, std::string_view bytes) {
    if (live(id)) parts_.add(0, id, bytes.size(), bytes);
  }
  void record(int rank, const Record& record) { claim(record.executed, record.signature, RankSet(rank), record.name); }
  /// The fewest commands that any local member has carried out.
  void executed(std::uint64_t commands);
  void gone(Departure d);
  /// An incomplete operation, and the ranks that have announced it.  @p id no_slot: the name has no id.
  void waits(std::uint32_t id, const std::string& name, const RankSet& here);

  /// A message that the leader of child @p node sent (or, for @p node itself, a member that leads nothing: a
  /// departure). Throws std::runtime_error on what up() cannot have made.
  void from_below(int node, std::string_view message);
  /// A message up that says nothing else.
  static std::string departure(const Departure& d);
  /// Each command in sequence, before this node's members can see it.
  void passing(Command type, std::string_view body);

  /// The message for the parent; empty when nothing is worth one now.
  /// @param now_ns  called only when that matters
  template <class Now>
  std::string up(Now&& now_ns) {
    if (!urgent_ && !(news_ && may_send(now_ns))) return {};
    if (news_) sent_ns_ = now_ns();
    return take_up();
  }
  /// up() would say something later though nothing arrives meanwhile.
  bool holding() const { return news_ || urgent_; }
  /// Null when the id has none, or no longer.
  const std::string* name(std::uint32_t id) const { return live(id) ? &names_[id] : nullptr; }
  /// At the root, for each id that drain() has said is complete: its parts, then drop().
  NodeParts& parts() { return parts_; }
  /// [nodes] whose part is where in there.
  std::vector<int> order_of_parts() const;
  /// At the root: everything goes to the coordinator.
  bool drain(Coordinator& coordinator);

  /// Calls f(id, name, ranks that have announced it) for what is held here; id is no_slot for records.
  template <class F>
  void held(F&& f) const;
  /// At the root: what other nodes said about waiting, by name, since the last call.
  std::unordered_map<std::string, RankSet> take_waits() { return std::move(waits_); }

 private:
  struct PendingAnnouncement {
    std::uint64_t executed;
    Signature signature;
    RankSet ranks;
    std::string name;
  };
  /// The records of a name from this subtree.  `all` stays until everybody's are there, sent or not.
  struct NameAnnouncements {
    Announcements all;
    std::vector<PendingAnnouncement> unsent;
  };
  bool live(std::uint32_t id) const { return live_[id / 64] >> (id % 64) & 1; }
  void ready(std::size_t source, std::uint32_t id);
  void claim(std::uint64_t executed, const Signature& s, const RankSet& ranks, const std::string& name);
  void hold_no_more();
  void clear(std::uint32_t id);
  static void write(ByteWriter& w, const PendingAnnouncement& c);
  static void write(ByteWriter& w, const Departure& d);
  /// @param below  whose word it can be
  static PendingAnnouncement read_claim(ByteReader& r, const RankSet& below);
  static Departure read_departure(ByteReader& r, const RankSet& below);
  std::string take_up();
  void put_parts(ByteWriter& w);
  void read_parts(ByteReader& r, std::size_t source);
  template <class Now>
  bool may_send(Now&& now_ns) const {
    if (under_way_.size() > 1) return false;  // what comes later runs later anyway
    return answered_ || now_ns() - sent_ns_ >= again_ns;
  }
  /// So long a leader gathers before its next news when the last ones were not answered by a command.
  static constexpr std::int64_t again_ns = 100'000;

  const TreeShape shape_;
  const int node_;
  std::vector<RankSet> below_;                    ///< [sources] the ranks behind each: this node, then its children
  RankSet everybody_;                             ///< of the subtree
  int ranks_ = 0;                                 ///< their number
  std::vector<std::vector<std::uint64_t>> have_;  ///< [sources][ids / 64] announced, and not yet by all sources
  std::vector<std::uint64_t> live_, up_;          ///< [ids / 64] that have a name; announced by all, and not yet sent
  std::vector<std::string> names_;                ///< [ids]
  std::unordered_map<std::string, std::uint32_t> id_of_;
  std::unordered_map<std::string, NameAnnouncements> held_;
  bool failed_ = false;                             ///< a group, at some time
  std::deque<PendingAnnouncement> claims_;          ///< to send
  std::vector<Departure> gone_;                     ///< to send
  std::unordered_map<std::string, RankSet> waits_;  ///< to send
  std::vector<std::uint64_t> executed_;             ///< [sources]
  NodeParts parts_;
  std::deque<std::uint64_t> under_way_;  ///< batches that this node has not carried out
  std::uint64_t commands_ = 0, told_executed_ = 0;
  bool joining_ = false;  ///< who has joined sends no records, so none are held, and they keep their order
  std::int64_t sent_ns_ = 0;
  bool ready_ = false, news_ = false, urgent_ = false;  ///< bits; what may wait a little; what may not
  bool answered_ = true;                                ///< a command has come since the last news
};

template <class F>
void TreeNode::held(F&& f) const {
  for (const auto& [name, h] : held_) f(no_slot, name, h.all.ranks());
  for (std::size_t w = 0; w < live_.size(); ++w) {
    std::uint64_t some = 0;
    for (const auto& words : have_) some |= words[w];
    for (; some; some &= some - 1) {
      const auto id = static_cast<std::uint32_t>(w * 64 + static_cast<unsigned>(__builtin_ctzll(some)));
      RankSet here;
      for (std::size_t s = 0; s < have_.size(); ++s)
        if (have_[s][w] >> (id % 64) & 1) here.merge(below_[s]);
      f(id, names_[id], here);
    }
  }
}

}  // namespace hvd::negotiate

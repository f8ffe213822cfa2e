/// @file tree.h — a node leader's place in the tree of leaders.  Announcements are merged on the way up; commands are
/// passed on, on the way down.
///
/// TreeNode is pure.  Its caller (core/set/leader.h, the simulator) reports the messages that arrived, gets the
/// messages to send, and moves the bytes.  The tree is a k-ary heap of nodes.  Its root is node 0, where the
/// coordinator is.
///
/// Up.  A leader passes on an id, as one bit, when its node and all children have announced the id.  A leader holds the
/// records of a name until the whole subtree has sent one.  Equal records then travel as one record with a set of
/// ranks; different records travel one after another.  If the name has an id, a leader passes on the record at once.
/// Such a record makes the coordinator evict the id, and the other ranks send their records only then.  A node's part
/// of a small tensor travels with the node's bit (node_parts.h).  Parts travel only if every node of the subtree has
/// sent one, and if they have few bytes in all.  Otherwise the bit travels alone.
///
/// Down.  Commands pass unchanged, in sequence.  A leader sees each command before its subtree does, so it never merges
/// announcements of two different rounds.  Special cases:
///   - A stale bit is a bit that was sent before its sender saw `evict`.  Usually its id has no name when the bit
///     arrives, and the leader ignores the bit.  Otherwise the next `assign` of the id clears the bit.  The coordinator
///     assigns an id only when all members have carried out its eviction.  A member reports the eviction after its
///     stale bits.
///   - While ranks join (command `joining` to `joined`) records pass at once.
///   - Between two nodes the root may offer a batch (coordinator.h).  The other leader keeps the parts that it has sent
///     until their batch.  So it can add up the offered tensors itself.
///   - After a group has failed, records pass at once too.  The coordinator tells a stale record of the group by the
///     number of commands that its sender had carried out.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "negotiate/command.h"
#include "negotiate/coordinator.h"
#include "negotiate/mismatch.h"
#include "negotiate/node_parts.h"
#include "negotiate/rankset.h"

namespace hvd::negotiate {

/// The k-ary heap of nodes; k is `arity`.
struct TreeShape {
  int nodes = 1, arity = 4;
  int parent(int n) const { return (n - 1) / arity; }
  int first_child(int n) const { return std::min(nodes, n * arity + 1); }
  int end_child(int n) const { return std::min(nodes, n * arity + arity + 1); }
  /// Calls f(first, last) for each level of n's subtree, from the top: the range of its nodes, both included.
  template <class F>
  void subtree(int n, F&& f) const {
    for (std::int64_t first = n, last = n; first < nodes; first = first * arity + 1, last = last * arity + arity)
      f(static_cast<int>(first), static_cast<int>(std::min<std::int64_t>(last, nodes - 1)));
  }
};

/// The end of a rank.
struct Departure {
  int rank = 0;
  std::uint32_t code = 0;
  std::string text;
};

/// Short hashes of a child's results, which follow the last ones (core/set/result_agreement.h).
struct ResultWords {
  std::size_t child = 0;  ///< from 0
  std::vector<std::uint32_t> words;
};

/// Size: the state of one protocol on one node, by message; see coordinator.h.
class TreeNode {
 public:
  /// @param ranks  [nodes] the ranks of each node
  TreeNode(TreeShape shape, int node, const std::vector<std::vector<int>>& ranks, std::uint32_t ids);

  int parent() const { return shape_.parent(node_); }
  int first_child() const { return shape_.first_child(node_); }
  int end_child() const { return shape_.end_child(node_); }

  // Announcements of this node's own members.
  void ready(std::uint32_t id) { ready(0, id); }
  /// Adds this node's part of the tensor.  Must be called before ready(id).  Returns the memory that the caller must
  /// fill with the part; nullptr: the part is not needed.
  unsigned char* part(std::uint32_t id, std::size_t bytes) { return live(id) ? parts_.add_own(id, bytes) : nullptr; }
  void record(int rank, const Record& record) { claim(record.executed, record.signature, RankSet(rank), record.name); }
  /// Notes that all local members have carried out the first @p commands commands.
  void executed(std::uint64_t commands);
  void gone(Departure d);
  /// Reports an incomplete operation upwards.  @p here: the ranks that have announced it.  @p id: no_slot if @p name
  /// has no id; otherwise @p name is ignored.
  void waits(std::uint32_t id, const std::string& name, const RankSet& here);

  /// Gives the parent a hash of this node's next result.  The hash travels with the next message, and causes none.
  void result_word(std::uint32_t word) { words_.push_back(word); }
  /// The words that the children have sent since the last call.
  std::vector<ResultWords> take_words() { return std::exchange(words_below_, {}); }

  /// Takes a message of up() from the leader of child @p node.  If @p node is this node, takes a departure() of a
  /// member that is no leader.  Throws std::runtime_error on a message that these functions cannot have made.
  void from_below(int node, std::string_view message);
  /// A message for the parent that only reports @p d.
  static std::string departure(const Departure& d);
  /// Must be called with each command in sequence, before this node's members can see the command.
  void passing(Command type, std::string_view body);

  /// Returns the message for the parent; empty: there is none to send now.
  /// @param now_ns  returns the time; called only when the time matters
  template <class Now>
  std::string up(Now&& now_ns) {
    if (!urgent_ && !(news_ && may_send(now_ns))) return {};
    if (news_) sent_ns_ = now_ns();
    return take_up();
  }
  /// True if up() returns a message now or later, even if nothing arrives meanwhile.
  bool holding() const { return news_ || urgent_; }
  /// The name of @p id; null: the id has none.
  const std::string* name(std::uint32_t id) const { return live(id) ? &names_[id] : nullptr; }
  /// For the root.  The caller reads the parts of each id that drain() has reported as complete, then calls drop(id).
  NodeParts& parts() { return parts_; }
  /// [nodes] the node of each part in NodeParts::parts().
  std::vector<int> order_of_parts() const;
  /// For the root.  Hands everything to @p coordinator.  Returns true if there was news.
  bool drain(Coordinator& coordinator);

  /// @name Offers between two nodes (tree_offers.cc)
  /// @{
  /// For the root.  True if only this node has announced @p id, and has given its part.
  bool only_own(std::uint32_t id) const;
  /// For the root.  True if both nodes have announced all @p ids with their parts: the other leader takes the offer.
  bool agreed(const std::vector<std::uint32_t>& ids) const;
  /// For the root.  True if drain() has news for the coordinator.
  bool any_news() const { return ready_ || !claims_.empty() || !gone_.empty(); }
  /// For the root.  True if drain() reports the end of a rank.
  bool any_gone() const { return !gone_.empty(); }
  /// For the root.  drain() will not hand over @p ids, which agreed() has reported.
  void take(const std::vector<std::uint32_t>& ids);
  /// For the root.  True if the other leader has declined an offer since the last call.
  bool take_declined() { return std::exchange(declined_, false); }
  /// For the leader that is not the root.  True if up() has sent this node's parts of all @p ids, and their batch has
  /// not arrived.
  bool sent(const std::vector<std::uint32_t>& ids) const;
  /// For the leader that is not the root.  If all @p ids can be sent with their parts now, the next up() sends them.
  void hurry(const std::vector<std::uint32_t>& ids);
  /// For the leader that is not the root.  The next up() declines the offer.
  void decline() { declines_ = urgent_ = true; }
  /// @}

  /// Calls f(id, name, ranks that have announced it) for each operation held here.  For records id is no_slot.
  template <class F>
  void held(F&& f) const;
  /// For the root.  The waits() that other nodes have reported since the last call: name to ranks.
  std::unordered_map<std::string, RankSet> take_waits() { return std::move(waits_); }

 private:
  struct PendingAnnouncement {
    std::uint64_t executed;
    Signature signature;
    RankSet ranks;
    std::string name;
  };
  /// The records of a name from this subtree.  `all` holds sent and unsent records until all ranks of the subtree have
  /// sent one.
  struct NameAnnouncements {
    Announcements all;
    std::vector<PendingAnnouncement> unsent;
  };
  bool live(std::uint32_t id) const { return live_[id / 64] >> (id % 64) & 1; }
  std::size_t words() const { return (names_.size() + 63) / 64; }  ///< of up_, in use
  void ready(std::size_t source, std::uint32_t id);
  void claim(std::uint64_t executed, const Signature& s, const RankSet& ranks, const std::string& name);
  void hold_no_more();
  void clear(std::uint32_t id);
  bool is_up(std::uint32_t id) const { return up_[id / 64] >> (id % 64) & 1; }
  bool has_sent(std::uint32_t id) const { return sent_[id / 64] >> (id % 64) & 1; }
  void forget_sent(std::string_view batch);
  static void write(ByteWriter& w, const PendingAnnouncement& c);
  static void write(ByteWriter& w, const Departure& d);
  /// @param below  the ranks of the sender's subtree; throws if the claim has other ranks
  static PendingAnnouncement read_claim(ByteReader& r, const RankSet& below);
  static Departure read_departure(ByteReader& r, const RankSet& below);
  std::string take_up();
  void put_parts(ByteWriter& w);
  void read_parts(ByteReader& r, std::size_t source);
  template <class Now>
  bool may_send(Now&& now_ns) const {
    if (under_way_.size() > 1) return false;  // two batches are ahead: later news would wait in any case
    return answered_ || now_ns() - sent_ns_ >= again_ns;
  }
  /// A leader waits this long before it sends news again, unless a command has come since its last news.
  static constexpr std::int64_t again_ns = 100'000;

  const TreeShape shape_;
  const int node_;
  const std::uint32_t ids_;
  std::vector<RankSet> below_;  ///< [sources] ranks of each: this node, then the subtree of each child
  RankSet everybody_;           ///< all ranks of the subtree
  int ranks_ = 0;               ///< the number of ranks in the subtree
  std::vector<std::vector<std::uint64_t>> have_;  ///< [sources][ids / 64] ids that only some sources have announced
  std::vector<std::uint64_t> live_, up_;          ///< [ids / 64] ids with a name; complete ids, to be sent
  std::vector<std::uint64_t> sent_;               ///< [ids / 64] ids whose parts were sent to the root of two nodes
  std::vector<std::string> names_;                ///< by id; as long as the largest id with a name needs
  std::unordered_map<std::string, std::uint32_t> id_of_;
  std::unordered_map<std::string, NameAnnouncements> held_;
  bool failed_ = false;                             ///< a group has failed at some time
  std::deque<PendingAnnouncement> claims_;          ///< to be sent
  std::vector<Departure> gone_;                     ///< to be sent
  std::unordered_map<std::string, RankSet> waits_;  ///< to be sent
  std::vector<std::uint32_t> words_;                ///< to be sent
  std::vector<ResultWords> words_below_;
  std::vector<std::uint64_t> executed_;  ///< [sources] commands that all ranks of the source have carried out
  NodeParts parts_;
  std::deque<std::uint64_t> under_way_;  ///< numbers of the batches that this node has not carried out
  std::uint64_t commands_ = 0, told_executed_ = 0;
  bool joining_ = false;  ///< joined ranks send no records, so holding would never end; records keep their order
  std::int64_t sent_ns_ = 0;
  bool ready_ = false, news_ = false, urgent_ = false;  ///< up_ has bits; news that may wait; news that may not
  bool answered_ = true;                                ///< a command has come since this leader's last news
  bool declines_ = false, declined_ = false;            ///< to be sent; has come from the other leader
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

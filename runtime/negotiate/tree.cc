#include "negotiate/tree.h"

#include <climits>

#include "negotiate/idset.h"

namespace hvd::negotiate {
namespace {

/// Flags of a message up: each part is there only if its flag is set.  A message is u8 flags, varint commands carried
/// out since the last message, then the parts.  Their order: ready, parts, claims, gone, waits, words.  Flag `declines`
/// has no part: the sender declined an offer before it announced the ids of this message.
enum : std::uint8_t {
  part_ready = 1,
  part_claims = 2,
  part_gone = 4,
  part_waits = 8,
  part_parts = 16,
  part_words = 32,
  declines = 64
};

/// A node reports the commands that it has carried out together with other news.  After this many commands it reports
/// them alone.  The report only frees ids.  About a thousand ids are spare, so each level of the tree may be late by
/// this number.
constexpr std::uint64_t tell_executed_every = 64;

/// In bytes.  A longer command might not fit a node's command ring (memory/node.h).  The writer would then wait for
/// room without end.
constexpr std::size_t longest_command = 60 << 10;

/// [sources] the number of nodes of each source: the node itself, then the subtree of each child.
std::vector<int> nodes_below(const TreeShape& shape, int node) {
  std::vector<int> counts{1};
  for (int child = shape.first_child(node); child < shape.end_child(node); ++child) {
    int count = 0;
    shape.subtree(child, [&](int first, int last) { count += std::max(0, last - first + 1); });
    counts.push_back(count);
  }
  return counts;
}

}  // namespace

TreeNode::TreeNode(TreeShape shape, int node, const std::vector<std::vector<int>>& ranks, std::uint32_t ids)
    : shape_(shape), node_(node), ids_(ids), parts_(nodes_below(shape, node)) {
  below_.push_back(RankSet::of(ranks[static_cast<std::size_t>(node)]));
  for (int child = first_child(); child < end_child(); ++child) {
    std::vector<int> all;
    shape_.subtree(child, [&](int first, int last) {
      for (int n = first; n <= last; ++n)
        all.insert(all.end(), ranks[static_cast<std::size_t>(n)].begin(), ranks[static_cast<std::size_t>(n)].end());
    });
    below_.push_back(RankSet::of(std::move(all)));
  }
  for (const RankSet& s : below_) everybody_.merge(s);
  ranks_ = everybody_.count();
  const std::size_t words = (ids + 63) / 64;
  have_.assign(below_.size(), std::vector<std::uint64_t>(words));
  live_.resize(words);
  up_.resize(words);
  sent_.resize(words);
  executed_.resize(below_.size());
}

void TreeNode::ready(std::size_t source, std::uint32_t id) {
  const std::size_t w = id / 64;
  const std::uint64_t bit = 1ull << (id % 64);
  if (!live(id)) return;  // evicted meanwhile: the ranks send records
  have_[source][w] |= bit;
  for (const auto& words : have_)
    if (!(words[w] & bit)) return;
  for (auto& words : have_) words[w] &= ~bit;
  up_[w] |= bit;
  ready_ = news_ = true;
}

void TreeNode::claim(std::uint64_t executed, const Signature& s, const RankSet& ranks, const std::string& name) {
  if (joining_ || failed_ || s.operation() == Kind::join) {
    claims_.push_back({executed, s, ranks, name});
    urgent_ = true;
    return;
  }
  NameAnnouncements& h = held_[name];
  h.all.add(s, ranks, 0, 0);
  auto same =
      std::find_if(h.unsent.begin(), h.unsent.end(), [&](const PendingAnnouncement& c) { return c.signature == s; });
  if (same == h.unsent.end()) {
    h.unsent.push_back({executed, s, ranks, name});
  } else {
    // No group has failed yet, so the age of the records does not matter.
    same->ranks.merge(ranks);
    same->executed = std::max(same->executed, executed);
  }
  const bool complete = h.all.count() >= ranks_ && h.all.ranks().count() == ranks_;
  if (!complete && !id_of_.count(name)) return;
  for (PendingAnnouncement& c : h.unsent) claims_.push_back(std::move(c));
  h.unsent.clear();
  (complete ? news_ : urgent_) = true;
  if (complete) held_.erase(name);
}

/// Queues all held records to go up at once.  The caller must set failed_ or joining_ first, so that claim() holds no
/// later records.
void TreeNode::hold_no_more() {
  for (auto& [name, h] : held_)
    for (PendingAnnouncement& c : h.unsent) claims_.push_back(std::move(c));
  held_.clear();
  urgent_ = true;
}

void TreeNode::executed(std::uint64_t commands) {
  executed_[0] = commands;
  while (!under_way_.empty() && under_way_.front() <= commands) under_way_.pop_front();
  if (*std::min_element(executed_.begin(), executed_.end()) >= told_executed_ + tell_executed_every) urgent_ = true;
}

void TreeNode::gone(Departure d) {
  gone_.push_back(std::move(d));
  urgent_ = true;
}

void TreeNode::waits(std::uint32_t id, const std::string& name, const RankSet& here) {
  if (id != no_slot && !live(id)) return;
  waits_[id == no_slot ? name : names_[id]].merge(here);
  urgent_ = true;
}

void TreeNode::clear(std::uint32_t id) {
  const std::uint64_t bit = 1ull << (id % 64);
  for (auto& words : have_) words[id / 64] &= ~bit;
  up_[id / 64] &= ~bit;
  sent_[id / 64] &= ~bit;
  parts_.drop(id);
}

void TreeNode::passing(Command type, std::string_view body) {
  if (type < Command::batch || type > Command::tune || body.size() > longest_command)
    throw std::runtime_error("negotiation: a command that does not exist");
  ++commands_;
  answered_ = true;
  ByteReader r(body);
  switch (type) {
    case Command::batch:
      under_way_.push_back(commands_);
      if (node_ != 0 && parts_.any()) forget_sent(body);
      break;
    case Command::assign: {
      const auto id = r.index(ids_);
      if (id >= names_.size()) names_.resize(id + 1);
      r.get<std::uint32_t>();
      clear(id);
      live_[id / 64] |= 1ull << (id % 64);
      names_[id] = r.rest();
      id_of_[names_[id]] = id;
      break;
    }
    case Command::evict: {
      const auto id = r.index(names_.size());
      clear(id);
      live_[id / 64] &= ~(1ull << (id % 64));
      id_of_.erase(names_[id]);
      break;
    }
    case Command::fail_group: {
      // Some ranks have ended the group, and others may announce it again.  Only the coordinator can distinguish them.
      // So from now on this node merges no records, which costs messages.  Few jobs continue after a failed group.
      failed_ = true;
      hold_no_more();
      break;
    }
    case Command::joining:
      joining_ = true;
      hold_no_more();
      break;
    case Command::joined:
      joining_ = false;
      break;
    default:
      break;
  }
}

void TreeNode::write(ByteWriter& w, const PendingAnnouncement& c) {
  w.varint(c.executed).varint(c.signature.bytes()).raw(c.signature.blob()).varint(c.name.size()).raw(c.name);
  c.ranks.put(w);
}

TreeNode::PendingAnnouncement TreeNode::read_claim(ByteReader& r, const RankSet& below) {
  PendingAnnouncement c;
  c.executed = r.varint();
  c.signature = read_signature(r.take(r.varint()));
  c.name = r.short_text();
  c.ranks = RankSet::get(r, below);
  if (c.ranks.empty()) throw std::runtime_error("negotiation: an announcement without ranks");
  return c;
}

Departure TreeNode::read_departure(ByteReader& r, const RankSet& below) {
  const std::uint64_t rank = r.varint();
  if (rank > INT_MAX || !below.contains(static_cast<int>(rank)))
    throw std::runtime_error("negotiation: ranks of another place in the tree");
  Departure d;
  d.rank = static_cast<int>(rank);
  d.code = static_cast<std::uint32_t>(r.varint());
  d.text = r.short_text();
  return d;
}

void TreeNode::write(ByteWriter& w, const Departure& d) {
  const std::string_view text = std::string_view(d.text).substr(0, longest_name);
  w.varint(static_cast<std::uint64_t>(d.rank)).varint(d.code).varint(text.size()).raw(text);
}

std::string TreeNode::departure(const Departure& d) {
  ByteWriter w;
  write(w.put(static_cast<std::uint8_t>(part_gone)).varint(0).varint(1), d);
  return std::move(w.bytes());
}

std::string TreeNode::take_up() {
  ByteWriter w;
  const std::uint64_t executed = *std::min_element(executed_.begin(), executed_.end());
  w.put(static_cast<std::uint8_t>((ready_ ? part_ready : 0) | (claims_.empty() ? 0 : part_claims) |
                                  (gone_.empty() ? 0 : part_gone) | (waits_.empty() ? 0 : part_waits) |
                                  (ready_ && parts_.any() ? part_parts : 0) | (words_.empty() ? 0 : part_words) |
                                  (declines_ ? declines : 0)));
  w.varint(executed - told_executed_);
  told_executed_ = executed;
  if (ready_) {
    put_ids(w, {up_.data(), words()});
    if (parts_.any()) put_parts(w);
    std::fill(up_.begin(), up_.end(), 0);
  }
  if (!claims_.empty()) {
    w.varint(claims_.size());
    for (const PendingAnnouncement& c : claims_) write(w, c);
    claims_.clear();
  }
  if (!gone_.empty()) {
    w.varint(gone_.size());
    for (const Departure& d : gone_) write(w, d);
    gone_.clear();
  }
  if (!waits_.empty()) {
    w.varint(waits_.size());
    for (const auto& [name, here] : waits_) {
      w.varint(name.size()).raw(name);
      here.put(w);
    }
    waits_.clear();
  }
  if (!words_.empty()) {
    w.varint(words_.size());
    for (const std::uint32_t word : words_) w.put(word);
    words_.clear();
  }
  if (news_) answered_ = false;
  ready_ = news_ = urgent_ = declines_ = false;
  return std::move(w.bytes());
}

void TreeNode::from_below(int node, std::string_view message) {
  if (node != node_ && (node < first_child() || node >= end_child()))
    throw std::runtime_error("negotiation: a message from node " + std::to_string(node) + ", which is no child");
  const std::size_t source = node == node_ ? 0 : static_cast<std::size_t>(node - first_child()) + 1;
  ByteReader r(message);
  const auto parts = r.get<std::uint8_t>();
  if (const std::uint64_t more = r.varint(); source > 0 && more > 0) {
    if (more > commands_ - executed_[source]) throw std::runtime_error("negotiation: more commands than there were");
    executed_[source] += more;
    executed(executed_[0]);
  }
  if (parts & declines) {
    if (source == 0 || shape_.nodes != 2) throw std::runtime_error("negotiation: an answer to no offer");
    declined_ = true;
  }
  if (parts & part_ready) {
    std::vector<std::uint32_t> ids;
    get_ids(r, static_cast<std::uint32_t>(names_.size()), [&](std::uint32_t id) { ids.push_back(id); });
    if (parts & part_parts) read_parts(r, source);
    for (const std::uint32_t id : ids) ready(source, id);
  }
  if (parts & part_claims)
    for (std::uint64_t n = r.varint(); n > 0; --n) {
      const PendingAnnouncement c = read_claim(r, below_[source]);
      claim(c.executed, c.signature, c.ranks, c.name);
    }
  if (parts & part_gone)
    for (std::uint64_t n = r.varint(); n > 0; --n) gone(read_departure(r, below_[source]));
  if (parts & part_waits)
    for (std::uint64_t n = r.varint(); n > 0; --n) {
      const std::string name(r.short_text());
      waits(no_slot, name, RankSet::get(r, below_[source]));
    }
  if (parts & part_words) {
    ResultWords w{source - 1, {}};
    const std::uint64_t count = r.varint();
    if (source == 0 || count > r.rest().size()) throw std::runtime_error("negotiation: hashes that cannot be");
    for (std::uint64_t i = 0; i < count; ++i) w.words.push_back(r.get<std::uint32_t>());
    words_below_.push_back(std::move(w));
  }
}

/// Writes the parts of the ids that go up: varint count, then for each id varint id, varint bytes of a part, the parts.
/// If they are too many bytes, the count is 0.  Between two nodes the parts stay here until the batch, for an offer.
void TreeNode::put_parts(ByteWriter& w) {
  std::vector<std::uint32_t> ids;
  std::size_t total = 0;
  for (std::size_t i = 0; i < words(); ++i)
    for (std::uint64_t bits = up_[i]; bits; bits &= bits - 1) {
      const auto id = static_cast<std::uint32_t>(i * 64) + static_cast<std::uint32_t>(__builtin_ctzll(bits));
      if (parts_.complete(id)) {
        ids.push_back(id);
        total += parts_.parts(id).size();
      } else {
        parts_.drop(id);
      }
    }
  const bool few = total <= NodeParts::most_bytes;
  w.varint(few ? ids.size() : 0);
  for (const std::uint32_t id : ids) {
    if (few) w.varint(id).varint(parts_.each(id)).raw(parts_.parts(id));
    if (few && shape_.nodes == 2)
      sent_[id / 64] |= 1ull << (id % 64);
    else
      parts_.drop(id);
  }
}

void TreeNode::read_parts(ByteReader& r, std::size_t source) {
  for (std::uint64_t n = r.varint(); n > 0; --n) {
    const std::uint64_t id = r.varint(), each = r.varint();
    if (id >= names_.size() || each > NodeParts::most_bytes)
      throw std::runtime_error("negotiation: parts of a tensor that cannot be");
    const std::string_view parts = r.take(each * parts_.nodes(source));
    if (live(static_cast<std::uint32_t>(id))) parts_.add(source, static_cast<std::uint32_t>(id), each, parts);
  }
}

std::vector<int> TreeNode::order_of_parts() const {
  std::vector<int> order;
  std::vector<int> left{node_};
  while (!left.empty()) {
    const int n = left.back();
    left.pop_back();
    order.push_back(n);
    for (int child = shape_.end_child(n); child-- > shape_.first_child(n);) left.push_back(child);
  }
  return order;
}

bool TreeNode::drain(Coordinator& coordinator) {
  const bool any = news_ || urgent_;
  if (ready_)
    for (std::size_t w = 0; w < words(); ++w) {
      // up_ is cleared first: the coordinator's commands pass through this object, and change up_.
      for (std::uint64_t bits = std::exchange(up_[w], 0); bits; bits &= bits - 1) {
        const std::uint32_t id = static_cast<std::uint32_t>(w * 64) + static_cast<std::uint32_t>(__builtin_ctzll(bits));
        coordinator.ready(id, parts_.complete(id));
      }
    }
  // Each claim leaves the queue first: it may fail its group, and the command for that appends to the queue.
  while (!claims_.empty()) {
    const PendingAnnouncement c = std::move(claims_.front());
    claims_.pop_front();
    coordinator.record(c.ranks, c.executed, c.signature, c.name);
  }
  for (const Departure& d : std::exchange(gone_, {})) coordinator.gone(d.rank, d.code, d.text);
  ready_ = news_ = urgent_ = false;
  coordinator.executed(*std::min_element(executed_.begin(), executed_.end()));
  return any;
}

}  // namespace hvd::negotiate

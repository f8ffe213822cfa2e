#include "ops/movement/transfer.h"

#include <algorithm>

#include "ops/movement/gather_plan.h"
#include "ops/movement/spread_tree.h"

namespace hvd::ops {

namespace {

/// True if nodes pass the data on in rounds.  All ranks decide alike, because each knows the lengths of all to_all().
bool passes_on(const Nodes& nodes, const TransferPlan& load) {
  if (load.only_sender >= 0 || load.any_for_one) return false;
  const int locals = nodes.local_size(0);  // must be equal: else a rank has no counterpart on every node
  for (int n = 1; n < nodes.count(); ++n)
    if (nodes.local_size(n) != locals) return false;
  std::size_t most = 0;
  for (int l = 0; l < locals; ++l) {
    std::size_t bytes = 0;  // that pass through the l-th rank of each node
    for (const auto& ranks : nodes.ranks)
      bytes += load.common[static_cast<std::size_t>(ranks[static_cast<std::size_t>(l)])].bytes();
    most = std::max(most, bytes);
  }
  return GatherPlan::is_faster(nodes.count(), most);
}

/// All other nodes, in the order in which this node's ranks copy their data into the rings.
std::vector<int> other_nodes(const Nodes& nodes, bool passed_on) {
  std::vector<int> others;
  const GatherPlan plan(nodes.count());
  for (int k = 0; k < nodes.count(); ++k)
    if (const int node = passed_on ? plan.before(nodes.node, k) : k; node != nodes.node) others.push_back(node);
  return others;
}

}  // namespace

Transfer::Transfer(Rings& rings, const Nodes& nodes, transport::Transport& transport, const TransferPlan& load)
    : own_(load.own) {
  std::vector<Pieces> streams;  // [local ranks]: the rank's own data, then the data that it receives for its node
  for (int l = 0; l < rings.ranks; ++l) {
    streams.push_back(load.common[static_cast<std::size_t>(nodes.rank(nodes.node, l))]);
    streams.back().append(load.local[static_cast<std::size_t>(l)]);
  }
  const std::size_t own = streams[static_cast<std::size_t>(rings.me)].bytes();
  const bool passed_on = passes_on(nodes, load);
  for (const int n : other_nodes(nodes, passed_on))
    for (const int r : nodes.ranks[static_cast<std::size_t>(n)])
      streams[static_cast<std::size_t>(nodes.relay(r, nodes.node))].append(load.common[static_cast<std::size_t>(r)]);
  if (load.only_sender >= 0)
    spread(nodes, transport, load.only_sender, load.common[static_cast<std::size_t>(load.only_sender)]);
  else if (passed_on)
    pass_on(nodes, transport, load);
  else
    send_directly(nodes, transport, load);
  for (const auto& m : streams_to_peers_) busy_.push_back(m.get());
  copy_ = std::make_unique<ShmCopy>(rings, std::move(streams), [this, own] { return own + arrived(); });
}

/// Makes one stream for each peer and direction.  Messages between two ranks are matched in order, so two streams would
/// be mixed up.  The stream carries the data for all ranks first, then the data for one rank.
void Transfer::send_directly(const Nodes& nodes, transport::Transport& transport, const TransferPlan& load) {
  const int me = nodes.rank(nodes.node, nodes.local);
  for (const int n : other_nodes(nodes, false))
    for (const int r : nodes.ranks[static_cast<std::size_t>(n)]) {
      const auto i = static_cast<std::size_t>(r);
      Pieces incoming, outgoing;
      if (nodes.relay(r, nodes.node) == nodes.local) incoming = load.common[i];
      const std::size_t shared = incoming.bytes();
      incoming.append(load.in[i]);
      if (nodes.rank(n, nodes.relay(me, n)) == r) outgoing = load.common[static_cast<std::size_t>(me)];
      outgoing.append(load.out[i]);
      if (incoming.bytes() > 0) {
        streams_to_peers_.push_back(std::make_unique<PeerStream>(transport, r, false, std::move(incoming)));
        if (shared > 0) arrivals_.push_back({streams_to_peers_.back().get(), shared});
      }
      if (outgoing.bytes() > 0)
        streams_to_peers_.push_back(std::make_unique<PeerStream>(transport, r, true, std::move(outgoing)));
    }
}

/// Each rank exchanges data with the ranks of the same local rank on other nodes.  In later rounds, a rank also sends
/// the data that it has received.
void Transfer::pass_on(const Nodes& nodes, transport::Transport& transport, const TransferPlan& load) {
  const GatherPlan plan(nodes.count());
  const auto given_by = [&](int node) -> const Pieces& {
    return load.common[static_cast<std::size_t>(nodes.rank(node, nodes.local))];
  };
  const std::size_t own = given_by(nodes.node).bytes();
  for (int round = 0; round < plan.rounds(); ++round) {
    Pieces incoming, outgoing;
    for (int k = 0; k < plan.count(round); ++k) {
      incoming.append(given_by(plan.before(plan.from(nodes.node, round), k)));
      outgoing.append(given_by(plan.before(nodes.node, k)));
    }
    const std::size_t bytes = incoming.bytes();
    if (outgoing.bytes() > 0)
      streams_to_peers_.push_back(
          std::make_unique<PeerStream>(transport, nodes.rank(plan.to(nodes.node, round), nodes.local), true,
                                       std::move(outgoing), [this, own] { return own + arrived(); }));
    if (bytes == 0) continue;
    streams_to_peers_.push_back(std::make_unique<PeerStream>(
        transport, nodes.rank(plan.from(nodes.node, round), nodes.local), false, std::move(incoming)));
    arrivals_.push_back({streams_to_peers_.back().get(), bytes});
  }
}

/// One rank of each node receives the sender's data.  This rank passes on the first bytes while later bytes still
/// arrive.
void Transfer::spread(const Nodes& nodes, transport::Transport& transport, int sender, const Pieces& pieces) {
  const int from = nodes.node_of[static_cast<std::size_t>(sender)];
  const auto hands_on = [&](int node) { return node == from ? sender : nodes.rank(node, nodes.relay(sender, node)); };
  if (hands_on(nodes.node) != nodes.rank(nodes.node, nodes.local) || pieces.bytes() == 0) return;
  const SpreadTree tree(nodes.count(), from, pieces.bytes());
  std::function<std::size_t()> here;
  if (nodes.node != from) {
    streams_to_peers_.push_back(
        std::make_unique<PeerStream>(transport, hands_on(tree.parent(nodes.node)), false, pieces));
    arrivals_.push_back({streams_to_peers_.back().get(), pieces.bytes()});
    here = [this] { return arrived(); };
  }
  for (int i = 0; i < tree.children(nodes.node); ++i)
    streams_to_peers_.push_back(
        std::make_unique<PeerStream>(transport, hands_on(tree.child(nodes.node, i)), true, pieces, here));
}

/// The number of bytes that have arrived for the ranks of this node, up to the first gap.  Bytes are passed on in
/// order.
std::size_t Transfer::arrived() {
  while (first_ < arrivals_.size() && arrivals_[first_].stream->through() >= arrivals_[first_].bytes)
    arrived_ += arrivals_[first_++].bytes;
  return first_ < arrivals_.size() ? arrived_ + arrivals_[first_].stream->through() : arrived_;
}

/// Copies at most 256 KiB, so that messages advance in between.  True if anything was copied.
bool Transfer::copy_own() {
  constexpr std::size_t most = 256 << 10;
  const std::size_t begin = copied_, end = std::min(own_.read.bytes(), begin + most);
  own_.write.each(begin, end,
                  [&](unsigned char* to, std::size_t at, std::size_t n) { own_.read.read(at, at + n, to); });
  copied_ = end;
  return end > begin;
}

bool Transfer::step() {
  bool moved = false;
  for (std::size_t i = 0; i < busy_.size();) {
    moved |= busy_[i]->step();
    if (busy_[i]->done()) {
      busy_[i] = busy_.back();
      busy_.pop_back();
    } else {
      ++i;
    }
  }
  moved |= copy_own();
  return copy_->step() || moved;
}

}  // namespace hvd::ops

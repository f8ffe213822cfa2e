#include "ops/movement/transfer.h"

#include "ops/movement/spread_tree.h"

namespace hvd::ops {

Transfer::Transfer(Rings& rings, const Nodes& nodes, transport::Transport& transport, const TransferPlan& load)
    : own_(load.own) {
  const int me = nodes.rank(nodes.node, nodes.local);
  std::vector<Pieces> streams;  // [local ranks]: its own, then what it takes in
  for (int l = 0; l < rings.ranks; ++l) {
    streams.push_back(load.common[static_cast<std::size_t>(nodes.rank(nodes.node, l))]);
    streams.back().append(load.local[static_cast<std::size_t>(l)]);
  }
  ready_ = streams[static_cast<std::size_t>(rings.me)].bytes();
  for (int n = 0; n < nodes.count(); ++n) {
    if (n == nodes.node) continue;
    for (int r : nodes.ranks[static_cast<std::size_t>(n)]) {
      const auto i = static_cast<std::size_t>(r);
      const int relay = nodes.relay(r, nodes.node);
      streams[static_cast<std::size_t>(relay)].append(load.common[i]);
      if (load.only_sender >= 0) continue;
      // One stream a pair and direction: messages of one pair arrive in order.
      Pieces incoming, outgoing;
      if (relay == nodes.local) incoming = load.common[i];
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
  if (load.only_sender >= 0)
    spread(nodes, transport, load.only_sender, load.common[static_cast<std::size_t>(load.only_sender)]);
  for (const auto& m : streams_to_peers_) busy_.push_back(m.get());
  copy_ = std::make_unique<ShmCopy>(rings, std::move(streams), [this] { return ready(); });
}

/// One rank of each node takes it in and hands it on while the rest of it is on its way.
void Transfer::spread(const Nodes& nodes, transport::Transport& transport, int sender, const Pieces& pieces) {
  const int from = nodes.node_of[static_cast<std::size_t>(sender)];
  const auto hands_on = [&](int node) { return node == from ? sender : nodes.rank(node, nodes.relay(sender, node)); };
  if (hands_on(nodes.node) != nodes.rank(nodes.node, nodes.local) || pieces.bytes() == 0) return;
  const SpreadTree tree(nodes.count(), from, pieces.bytes());
  const PeerStream* incoming = nullptr;
  if (nodes.node != from) {
    streams_to_peers_.push_back(
        std::make_unique<PeerStream>(transport, hands_on(tree.parent(nodes.node)), false, pieces));
    incoming = streams_to_peers_.back().get();
    arrivals_.push_back({incoming, pieces.bytes()});
  }
  for (int i = 0; i < tree.children(nodes.node); ++i)
    streams_to_peers_.push_back(
        std::make_unique<PeerStream>(transport, hands_on(tree.child(nodes.node, i)), true, pieces, incoming));
}

/// How much of this rank's stream is here: it goes out in order.
std::size_t Transfer::ready() {
  while (first_ < arrivals_.size() && arrivals_[first_].stream->through() >= arrivals_[first_].bytes)
    ready_ += arrivals_[first_++].bytes;
  return first_ < arrivals_.size() ? ready_ + arrivals_[first_].stream->through() : ready_;
}

/// A part of it: messages are looked at in between.
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

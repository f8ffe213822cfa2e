#include "ops/hierarchical/carry.h"

namespace hvd::ops {

Carry::Carry(Rings& rings, const Nodes& nodes, transport::Transport& transport, const Load& load) {
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
      const int pourer = nodes.pourer(r, nodes.node);
      streams[static_cast<std::size_t>(pourer)].append(load.common[i]);
      // One stream a pair and direction: messages of one pair arrive in order.
      Pieces incoming, outgoing;
      if (pourer == nodes.local) incoming = load.common[i];
      const std::size_t shared = incoming.bytes();
      incoming.append(load.in[i]);
      if (nodes.rank(n, nodes.pourer(me, n)) == r) outgoing = load.common[static_cast<std::size_t>(me)];
      outgoing.append(load.out[i]);
      if (incoming.bytes() > 0) {
        mails_.push_back(std::make_unique<Mail>(transport, r, false, std::move(incoming)));
        if (shared > 0) arrivals_.push_back({mails_.back().get(), shared});
      }
      if (outgoing.bytes() > 0) mails_.push_back(std::make_unique<Mail>(transport, r, true, std::move(outgoing)));
    }
  }
  for (const auto& m : mails_) busy_.push_back(m.get());
  pour_ = std::make_unique<ShmPour>(rings, std::move(streams), [this] { return ready(); });
}

/// How much of this rank's stream is here: it goes out in order.
std::size_t Carry::ready() {
  while (first_ < arrivals_.size() && arrivals_[first_].mail->through() >= arrivals_[first_].bytes)
    ready_ += arrivals_[first_++].bytes;
  return first_ < arrivals_.size() ? ready_ + arrivals_[first_].mail->through() : ready_;
}

bool Carry::step() {
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
  return pour_->step() || moved;
}

}  // namespace hvd::ops

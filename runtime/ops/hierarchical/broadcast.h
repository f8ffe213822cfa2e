/// @file broadcast.h — broadcast over nodes: the root sends chunks to one rank of every other node, which pours them
/// into its node's ring.
#pragma once
#include "ops/hierarchical/links.h"
#include "ops/shm/broadcast.h"

namespace hvd::ops {

class CrossBroadcast final : public Stage, private ChunkSource {
 public:
  CrossBroadcast(Rings& rings, const Nodes& nodes, transport::Transport& transport, int root, const unsigned char* in,
                 unsigned char* out, std::size_t bytes)
      : nodes_(nodes),
        chunk_(rings.chunk_bytes()),
        bytes_(bytes),
        root_(root),
        in_(in),
        away_(nodes.node_of[static_cast<std::size_t>(root)] != nodes.node),
        sends_here_(nodes.rank(nodes.node, nodes.local) == root && nodes.count() > 1),
        sends_(transport),
        receive_(transport),
        local_(rings, away_ ? nodes.pourer(root, nodes.node) : nodes.local_of[static_cast<std::size_t>(root)], in, out,
               bytes, away_ ? this : nullptr) {}

  bool step() override {
    bool moved = local_.step();
    if (!sends_here_) return moved;
    all_sent_ = sends_.done() && sent_ == bytes_;
    while (sent_ < bytes_ && sends_.under_way() < 4u * static_cast<unsigned>(nodes_.count())) {
      const std::size_t n = std::min(chunk_, bytes_ - sent_);
      for (int m = 0; m < nodes_.count(); ++m)
        if (m != nodes_.node) sends_.send(nodes_.rank(m, nodes_.pourer(root_, m)), in_ + sent_, n);
      sent_ += n;
      moved = true;
    }
    return moved;
  }
  bool done() const override { return local_.done() && (!sends_here_ || bytes_ == 0 || all_sent_); }

 private:
  bool fetch(unsigned char* to, std::size_t at, std::size_t bytes) override {
    if (asked_ <= at) {
      receive_.receive(root_, to, bytes);
      asked_ = at + bytes;
    }
    return receive_.done();
  }
  const Nodes& nodes_;
  const std::size_t chunk_, bytes_;
  const int root_;
  const unsigned char* in_;
  const bool away_, sends_here_;
  std::size_t sent_ = 0, asked_ = 0;
  bool all_sent_ = false;
  Messages sends_, receive_;
  ShmBroadcast local_;
};

}  // namespace hvd::ops

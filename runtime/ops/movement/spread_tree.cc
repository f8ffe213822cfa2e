#include "ops/movement/spread_tree.h"

#include <algorithm>

#include "ops/movement/peer_stream.h"

namespace hvd::ops {
namespace {

/// Estimated time in ns until the last node has all bytes.  The first segment travels down the tree.  The other
/// segments follow at the rate of a link that carries each segment to all children.
double cost(int nodes, int arity, double bytes, const NetworkModel& m) {
  int depth = 0;
  for (std::int64_t reached = 1, level = 1; reached < nodes; ++depth) reached += level *= arity;
  const double segments = std::max(1.0, bytes / static_cast<double>(PeerStream::largest));
  const double one = arity * (m.message_ns + bytes / segments * m.byte_ns);
  return depth * (m.latency_ns + one) + (segments - 1) * one;
}

}  // namespace

SpreadTree::SpreadTree(int nodes, int root, std::size_t bytes, const NetworkModel& model)
    : nodes_(nodes), root_(root), arity_(std::max(1, nodes - 1)) {
  double least = cost(nodes, arity_, static_cast<double>(bytes), model);
  for (int arity = 1; arity < nodes - 1; arity = arity < 4 ? arity + 1 : arity * 2)
    if (const double time = cost(nodes, arity, static_cast<double>(bytes), model); time < least) {
      least = time;
      arity_ = arity;
    }
}

int SpreadTree::children(int node) const {
  const int first = place(node) * arity_ + 1;
  return std::clamp(nodes_ - first, 0, arity_);
}

}  // namespace hvd::ops

/// @file spread_tree.h — the nodes that hand on what one rank sends to all.
///
/// A heap whose root is the sender's node: node k of it hands on to k·arity + 1 and so on.  With one child a node it is
/// a chain, over which much data travels at the rate of a link, however many nodes there are; with all of them the
/// sender reaches everybody at once, which suits little data and few nodes.
#pragma once
#include <cstddef>
#include <utility>

#include "ops/network_model.h"

namespace hvd::ops {

class SpreadTree {
 public:
  /// @param root  the sender's node
  /// @param bytes  that it sends: the same on all ranks, as is what is chosen
  SpreadTree(int nodes, int root, std::size_t bytes, const NetworkModel& model = {});

  int arity() const { return arity_; }
  /// Of a node that is not the root.
  int parent(int node) const { return node_at((place(node) - 1) / arity_); }
  int children(int node) const;
  int child(int node, int i) const { return node_at(place(node) * arity_ + 1 + i); }

 private:
  int place(int node) const { return (node - root_ + nodes_) % nodes_; }
  int node_at(int place) const { return (place + root_) % nodes_; }

  int nodes_, root_, arity_;
};

}  // namespace hvd::ops

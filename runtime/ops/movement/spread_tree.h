/// @file spread_tree.h — the tree of nodes over which one rank's data reaches all nodes.
///
/// The tree is a heap; its root is the sender's node.  Place k passes the data on to the places k·arity + 1 to k·arity
/// + arity.  With arity 1 the tree is a chain.  A chain moves large data at the rate of a link, with any number of
/// nodes.  With arity n - 1 the sender reaches all nodes directly, which suits small data and few nodes.
#pragma once
#include <cstddef>
#include <utility>

#include "ops/network_model.h"

namespace hvd::ops {

class SpreadTree {
 public:
  /// Chooses the arity with the least estimated time.  All ranks give the same arguments, so all choose alike.
  /// @param root   the sender's node
  /// @param bytes  length of the data
  SpreadTree(int nodes, int root, std::size_t bytes, const NetworkModel& model = {});

  int arity() const { return arity_; }
  /// The node from which @p node receives.  The root has no parent: do not call it for the root.
  int parent(int node) const { return node_at((place(node) - 1) / arity_); }
  /// Number of nodes to which @p node sends.
  int children(int node) const;
  int child(int node, int i) const { return node_at(place(node) * arity_ + 1 + i); }

 private:
  int place(int node) const { return (node - root_ + nodes_) % nodes_; }
  int node_at(int place) const { return (place + root_) % nodes_; }

  int nodes_, root_, arity_;
};

}  // namespace hvd::ops

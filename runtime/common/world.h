/// @file world.h — the ranks of a world, and the nodes that they share.  A process set is a world too.
#pragma once
#include <vector>

namespace hvd {

struct World {
  int rank = 0, size = 1;
  std::vector<int> node_of;             ///< [size] index of its node
  std::vector<int> local_of;            ///< [size] index within its node
  std::vector<std::vector<int>> nodes;  ///< ranks of each node, ascending; nodes in the order of their lowest rank
  bool in_rank_order = false;           ///< each rank is a node, and sums add the nodes' parts in rank order
  std::vector<int> world_ranks;         ///< [size] the user's number of each rank: its rank in the global world

  int world_rank(int r) const { return world_ranks[static_cast<std::size_t>(r)]; }
  int node() const { return node_of[static_cast<std::size_t>(rank)]; }
  int local_rank() const { return local_of[static_cast<std::size_t>(rank)]; }
  const std::vector<int>& locals() const { return nodes[static_cast<std::size_t>(node())]; }
  int local_size() const { return static_cast<int>(locals().size()); }
  bool leader() const { return local_rank() == 0; }
  bool homogeneous() const;
  /// Only nodes that have a rank with this rank's local index count.  cross_rank(): the index of this node among them.
  /// cross_size(): their number.
  int cross_rank() const;
  int cross_size() const;

  /// @param hosts           [size] host of each rank; ranks with equal numbers share a host
  /// @param ranks_per_node  most ranks of a node: a larger host becomes several nodes.  0: each host is one node
  static World of(int rank, const std::vector<int>& hosts, int ranks_per_node);
  /// The world of a process set.  @p members: ranks of this world, with this rank among them.  Member i becomes rank i.
  World subset(const std::vector<int>& members) const;
};

}  // namespace hvd

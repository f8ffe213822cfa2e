/// @file world.h — which ranks there are and which of them share a node; also of a process set, which is a world by
/// itself.
#pragma once
#include <vector>

namespace hvd {

struct World {
  int rank = 0, size = 1;
  std::vector<int> node_of;             ///< [size]
  std::vector<int> local_of;            ///< [size]: index within its node
  std::vector<std::vector<int>> nodes;  ///< ranks of each node, ascending; nodes in order of their lowest rank
  bool in_rank_order = false;           ///< each rank is a node, and nodes' parts are added from left to right
  std::vector<int> world_ranks;         ///< [size]: what users call them; the ranks themselves but for a process set

  int world_rank(int r) const { return world_ranks[static_cast<std::size_t>(r)]; }
  int node() const { return node_of[static_cast<std::size_t>(rank)]; }
  int local_rank() const { return local_of[static_cast<std::size_t>(rank)]; }
  const std::vector<int>& locals() const { return nodes[static_cast<std::size_t>(node())]; }
  int local_size() const { return static_cast<int>(locals().size()); }
  bool leader() const { return local_rank() == 0; }
  bool homogeneous() const;
  /// Index of this node among those that have a rank at this local index, and their number.
  int cross_rank() const;
  int cross_size() const;

  /// @param hosts           [size] any number per host
  /// @param ranks_per_node  the most ranks of a node; larger hosts become several nodes.  0: a host is a node
  static World of(int rank, const std::vector<int>& hosts, int ranks_per_node);
  /// The process set of @p members, ranks of this world; member i is its rank i.  This rank must be one of them.
  World subset(const std::vector<int>& members) const;
};

}  // namespace hvd

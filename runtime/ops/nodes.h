/// @file nodes.h — this rank's place among the nodes of a process set.
#pragma once
#include <algorithm>
#include <vector>

namespace hvd::ops {

/// The node of every rank, for operations that distinguish ranks of the same node from others.
struct Nodes {
  std::vector<std::vector<int>> ranks;  ///< [nodes][local size] ranks of the set
  std::vector<int> node_of, local_of;   ///< [size] node and local rank of each rank
  int node = 0, local = 0;              ///< node and local rank of this rank
  bool in_rank_order = false;           ///< see World

  int count() const { return static_cast<int>(ranks.size()); }
  int local_size(int n) const { return static_cast<int>(ranks[static_cast<std::size_t>(n)].size()); }
  int rank(int n, int l) const { return ranks[static_cast<std::size_t>(n)][static_cast<std::size_t>(l)]; }
  /// Number of ranks of each node that carry a slice: the size of the smallest node.
  int carriers() const {
    std::size_t least = ranks.front().size();
    for (const auto& r : ranks) least = std::min(least, r.size());
    return static_cast<int>(least);
  }
  /// True if no node has more than one rank.
  bool alone() const { return static_cast<std::size_t>(count()) == node_of.size(); }
  /// The local rank of node @p n that exchanges data with @p rank on behalf of its whole node.  If @p rank is itself on
  /// node @p n: its own local rank.
  int relay(int rank, int n) const { return local_of[static_cast<std::size_t>(rank)] % local_size(n); }
};

}  // namespace hvd::ops

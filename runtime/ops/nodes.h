/// @file nodes.h — this rank's place among the nodes of a process set.
#pragma once
#include <algorithm>
#include <vector>

namespace hvd::ops {

/// Which ranks sit where; what the hierarchical operations need of the world.
struct Nodes {
  std::vector<std::vector<int>> ranks;  ///< [nodes][local size] world ranks
  std::vector<int> node_of, local_of;   ///< [size]
  int node = 0, local = 0;              ///< of this rank
  bool in_rank_order = false;           ///< see World

  int count() const { return static_cast<int>(ranks.size()); }
  int local_size(int n) const { return static_cast<int>(ranks[static_cast<std::size_t>(n)].size()); }
  int rank(int n, int l) const { return ranks[static_cast<std::size_t>(n)][static_cast<std::size_t>(l)]; }
  /// Ranks of each node that carry a slice: as many as the smallest node has.
  int carriers() const {
    std::size_t least = ranks.front().size();
    for (const auto& r : ranks) least = std::min(least, r.size());
    return static_cast<int>(least);
  }
  /// No node has more than one rank.
  bool alone() const { return static_cast<std::size_t>(count()) == node_of.size(); }
  /// The local rank of node @p n that takes in what @p rank of another node has.
  int relay(int rank, int n) const { return local_of[static_cast<std::size_t>(rank)] % local_size(n); }
};

}  // namespace hvd::ops

/// @file gather_plan.h — how nodes come to what each of them gives to all.
///
/// Directly, everybody sends to everybody: one latency, n - 1 messages and connections.  In rounds, a node passes on
/// all its data to the node whose number is 2^k higher: ceil(log2 n) latencies, messages and connections (J. Bruck,
/// C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby, "Efficient Algorithms for All-to-All Communications in Multiport
/// Message-Passing Systems", 1997).
#pragma once
#include <algorithm>
#include <cstddef>

#include "ops/network_model.h"

namespace hvd::ops {

/// In rounds.  What node i gets comes in the order of the nodes i - 1, i - 2, …, and what it sends in a round is the
/// front of its own and that: so streams are passed on while they come in.
class GatherPlan {
 public:
  explicit GatherPlan(int nodes) : nodes_(nodes) {
    while (1 << rounds_ < nodes) ++rounds_;
  }
  int rounds() const { return rounds_; }
  int to(int node, int round) const { return (node + (1 << round)) % nodes_; }
  int from(int node, int round) const { return before(node, 1 << round); }
  /// So many nodes' data travel in a round.
  int count(int round) const { return std::min(1 << round, nodes_ - (1 << round)); }
  /// The k-th of a node's data: 0 is its own.
  int before(int node, int k) const { return (node - k + nodes_) % nodes_; }

  /// Estimated time in ns until a node has @p bytes from all nodes together.  Half of the bytes come by one connection,
  /// in the last round.  One connection does not fill a fast link, so half of the link's rate is assumed.
  double cost(std::size_t bytes, const NetworkModel& m) const {
    return rounds_ * (m.latency_ns + m.message_ns) + 1.5 * static_cast<double>(bytes) * m.byte_ns;
  }
  /// The same where everybody sends to everybody.
  static double direct_cost(int nodes, std::size_t bytes, const NetworkModel& m) {
    return m.latency_ns + (nodes - 1) * m.message_ns + static_cast<double>(bytes) * m.byte_ns;
  }
  /// Whether rounds are faster.
  static bool is_faster(int nodes, std::size_t bytes, const NetworkModel& model = {}) {
    return GatherPlan(nodes).cost(bytes, model) < direct_cost(nodes, bytes, model);
  }

 private:
  int nodes_, rounds_ = 0;
};

}  // namespace hvd::ops

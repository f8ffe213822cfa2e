/// @file gather_plan.h — plans of an allgather between nodes: direct, or in rounds.
///
/// Direct: every node sends to every other node.  The direct plan costs one latency, n - 1 messages and n - 1
/// connections.
/// In rounds: in round k, node i sends all data that it has to node i + 2^k.  The plan in rounds costs ceil(log2 n)
/// latencies, messages and connections (J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby, "Efficient Algorithms
/// for All-to-All Communications in Multiport Message-Passing Systems", 1997).
#pragma once
#include <algorithm>
#include <cstddef>

#include "ops/network_model.h"

namespace hvd::ops {

/// The plan in rounds.  Node i receives the data of the nodes i - 1, i - 2, … in this order.  In each round the node
/// sends its own data, then the first of the received data.  So a node passes a stream on while it receives the stream.
class GatherPlan {
 public:
  explicit GatherPlan(int nodes) : nodes_(nodes) {
    while (1 << rounds_ < nodes) ++rounds_;
  }
  int rounds() const { return rounds_; }
  /// The node to which @p node sends in a round, and the node from which it receives.
  int to(int node, int round) const { return (node + (1 << round)) % nodes_; }
  int from(int node, int round) const { return before(node, 1 << round); }
  /// A node sends the data of this number of nodes in a round.
  int count(int round) const { return std::min(1 << round, nodes_ - (1 << round)); }
  /// The source of the k-th data that @p node has; for k = 0, @p node itself.
  int before(int node, int k) const { return (node - k + nodes_) % nodes_; }

  /// Estimated time in ns until a node has @p bytes, the data of all nodes together.  In the last round, half of the
  /// bytes arrive over one connection.  One connection does not fill a fast link, so this half is counted with half of
  /// the link's rate.
  double cost(std::size_t bytes, const NetworkModel& m) const {
    return rounds_ * (m.latency_ns + m.message_ns) + 1.5 * static_cast<double>(bytes) * m.byte_ns;
  }
  /// Estimated time in ns of the direct plan.
  static double direct_cost(int nodes, std::size_t bytes, const NetworkModel& m) {
    return m.latency_ns + (nodes - 1) * m.message_ns + static_cast<double>(bytes) * m.byte_ns;
  }
  /// True if the plan in rounds is faster than the direct plan.
  static bool is_faster(int nodes, std::size_t bytes, const NetworkModel& model = {}) {
    return GatherPlan(nodes).cost(bytes, model) < direct_cost(nodes, bytes, model);
  }

 private:
  int nodes_, rounds_ = 0;
};

}  // namespace hvd::ops

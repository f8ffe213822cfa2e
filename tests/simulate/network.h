/// @file network.h — LogGP over a fat tree: the cost of a message for its sender and its receiver, and its arrival.
///
/// LogGP: A. Alexandrov, M. Ionescu, K. Schauser, C. Scheiman, "LogGP: incorporating
/// long messages into the LogP model", SPAA 1995. A message occupies its sender, and later its receiver, for the time
/// o. Two messages of a sender are at least g apart. G is the time per byte on the link. L is the latency. L grows with
/// the number of switches on the path: 1 under one leaf switch, 3 within a pod, 5 through the core.
#pragma once
#include <cstdint>

namespace hvd::simulate {

using Time = double;  ///< nanoseconds of the simulated cluster

/// Defaults: published figures of MPI over an InfiniBand EDR fat tree of this size.
struct Network {
  Time o = 400, g = 200, L = 900, per_switch = 110;
  Time G = 0.04;             ///< ns a byte: 25 GB/s into a node
  int leaf = 18, pod = 324;  ///< nodes under a leaf switch, in a pod

  Time latency(int a, int b) const {
    const int switches = a / leaf == b / leaf ? 1 : a / pod == b / pod ? 3 : 5;
    return L + per_switch * switches;
  }
  Time wire(std::size_t bytes) const { return bytes > 0 ? static_cast<Time>(bytes - 1) * G : 0; }
  /// A round of a collective between far nodes, one message each way.
  Time round(std::size_t bytes) const { return 2 * o + wire(bytes) + L + 5 * per_switch; }
  static int log2(int n) {
    int rounds = 0;
    for (int reach = 1; reach < n; reach *= 2) ++rounds;
    return rounds;
  }
  /// Bandwidth-optimal allreduce over nodes (recursive halving and doubling): what carries the gradients, the same for
  /// both runtimes that are compared.
  Time allreduce(int nodes, double bytes) const {
    if (nodes == 1) return bytes * G / 4;
    return 2 * log2(nodes) * round(1) + 2 * bytes * G * (nodes - 1) / nodes;
  }
};

}  // namespace hvd::simulate

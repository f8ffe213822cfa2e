/// @file horovod.h — a model of Horovod's negotiation, by its message sizes over the same network.
///
/// Cached tensors: in every cycle all ranks combine two bit vectors (AND of cache hits, OR of flags). Each vector is an
/// MPI_Allreduce of capacity / 64 + 1 words among all ranks. Uncached tensors (or no cache): every rank's list of
/// requests is gathered at rank 0 (sizes, then bytes), and the list of responses is broadcast.
#pragma once
#include <algorithm>

#include "simulate/cluster.h"

namespace hvd::simulate {

struct Peer {
  Time cycle = 1e6;           ///< HOROVOD_CYCLE_TIME
  double request_bytes = 80;  ///< a serialised request without its name
  double name_bytes = 16;
  int capacity = 1024;

  std::size_t vector_bytes() const { return static_cast<std::size_t>(capacity / 64 + 1) * 8; }
  /// Recursive doubling: every rank sends and receives a message a round; the ranks of a node share its link.
  Time cached(const Network& net, int ranks, int per_node) const {
    return 2 * Network::log2(ranks) * (net.round(vector_bytes()) + per_node * net.g);
  }
  /// The maximum that a node sends and receives for it.
  double cached_messages(int ranks, int per_node) const { return 2.0 * 2 * Network::log2(ranks) * per_node; }
  /// Rank 0 takes a message from every rank, twice, and reads every request.
  Time gathered(const Network& net, int ranks, int tensors) const {
    const double each = tensors * (request_bytes + name_bytes);
    const Time gather = ranks * std::max(net.g, net.o) + net.round(4);
    const Time bytes = ranks * (std::max(net.g, net.o) + each * net.G) + net.round(static_cast<std::size_t>(each));
    return gather + bytes + 2 * Network::log2(ranks) * net.round(static_cast<std::size_t>(each));
  }
  double gathered_bytes(int ranks, int tensors) const {
    return ranks * (4.0 + tensors * (request_bytes + name_bytes)) * 1.0;
  }

  /// The time of a step: cycles run one after the other, and data of agreed tensors moves meanwhile.
  struct Step {
    Time ends = 0;
    int cycles = 0, batches = 0;
  };
  /// @param ready  [tensors] the time when each tensor is ready on the last rank
  template <class Carry>
  Step step(const std::vector<Time>& ready, double bytes, Carry&& carry, const Network& net, const Shape& s,
            bool cache) const {
    Step result;
    Time begin = 0, data = 0;
    const int all = static_cast<int>(ready.size());
    for (int done = 0; done < all; ++result.cycles) {
      int next = done;
      while (next < all && ready[static_cast<std::size_t>(next)] <= begin) ++next;
      const Time takes = cache ? cached(net, s.ranks, s.per_node) : gathered(net, s.ranks, next - done);
      if (next > done) {
        data = std::max(data, begin + takes) + carry(bytes * (next - done) / all);
        ++result.batches;
      }
      done = next;
      begin += std::max(cycle, takes);
    }
    result.ends = data;
    return result;
  }
};

}  // namespace hvd::simulate

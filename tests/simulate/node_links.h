/// @file node_links.h — nodes of a simulated network that exchange messages, and the runtime's model of it.
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

#include "network.h"
#include "ops/network_model.h"

namespace hvd::simulate {

/// A node's processor and its link, each way, serve one message at a time.
class NodeLinks {
 public:
  NodeLinks(int nodes, const Network& net) : net_(net) {
    for (auto* t : {&cpu_, &out_, &in_}) t->assign(static_cast<std::size_t>(nodes), 0);
  }
  /// Returns the time of its arrival. @p begins: the sender can send it from then on.
  Time send(int from, int to, std::size_t bytes, Time begins) {
    const auto a = static_cast<std::size_t>(from), b = static_cast<std::size_t>(to);
    cpu_[a] = std::max(cpu_[a], begins) + net_.o;
    out_[a] = std::max(out_[a], cpu_[a]) + net_.g + net_.wire(bytes);
    in_[b] = std::max(in_[b] + net_.wire(bytes), out_[a] + net_.latency(from, to));
    cpu_[b] = std::max(cpu_[b], std::min(in_[b], cpu_[b] + net_.o));
    return in_[b] + net_.o;
  }

 private:
  Network net_;
  std::vector<Time> cpu_, out_, in_;  ///< [nodes] the end of the current work
};

inline ops::NetworkModel model_of(const Network& net) {
  ops::NetworkModel m;
  m.latency_ns = net.o + net.L + 5 * net.per_switch;
  m.message_ns = 2 * net.o;
  m.byte_ns = net.G;
  m.add_byte_ns = 0.01;  // while the link works
  return m;
}

}  // namespace hvd::simulate

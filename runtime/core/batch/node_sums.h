/// @file node_sums.h — allreduces of small tensors between nodes: one message up the tree and one down.
///
/// A leader adds up the slots of its node's ranks, and sends the sum with the announcement.  The coordinator's leader
/// adds up the nodes' parts in node order, and sends the result with the command.  Each leader writes the result to its
/// own slot, because the input there is no longer needed.  The ranks of its node read the result there.  Slices use the
/// same arithmetic (ops/allreduce/between_nodes.h), so the result has the same bits.
///
/// Drive side of a node's leader.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/world.h"
#include "core/operation/operation.h"
#include "memory/node.h"
#include "negotiate/node_parts.h"
#include "ops/network_model.h"
#include "ops/node_order.h"
#include "ops/shm/eager.h"

namespace hvd::core {

/// Bytes of the largest tensor that travels with its announcement, between @p nodes nodes.  Larger tensors travel in
/// slices.
std::size_t largest_travelling(std::size_t nodes, const ops::NetworkModel& network);
/// Bytes of all tensors together that travel with one announcement.
std::size_t largest_travelling_sum(std::size_t nodes, const ops::NetworkModel& network);

class NodeSums {
 public:
  /// @p pending: by id, the operations that this rank has submitted by bit.  @p check: looks at the sums of the node's
  /// ranks; nullptr: no check.  All must outlive this object.
  NodeSums(const World& world, const memory::Node& node, const std::vector<Operation*>& pending,
           ops::FiniteCheck* check)
      : node_(node),
        pending_(pending),
        check_(check),
        slots_(node),
        levels_(ops::levels_of_order(static_cast<int>(world.nodes.size()), world.in_rank_order)) {}

  /// The bytes of this node's part of @p id on the wire, once all local ranks have submitted it.  0: the tensor is not
  /// summed here.
  std::size_t bytes(std::uint32_t id) const;
  /// Writes the sum of the local ranks' inputs to @p to: bytes(id) bytes.  Only if bytes(id) is not 0.
  void part(std::uint32_t id, unsigned char* to);
  /// Writes the result of all nodes' parts to the leader's slot, and returns it.  @p parts: [nodes] by node.  To be
  /// called before the batch is published on this node.  Throws std::runtime_error if a length is not the tensor's.
  std::string_view whole(std::uint32_t id, std::span<const std::string_view> parts);
  /// Writes the coordinator's @p result to the leader's slot.  To be called before the batch is published on this node.
  /// Throws std::runtime_error if the length is not the tensor's.
  void put(std::uint32_t id, std::string_view result);

 private:
  const Operation* summed(std::uint32_t id) const;

  const memory::Node& node_;
  const std::vector<Operation*>& pending_;
  ops::FiniteCheck* const check_;
  ops::EagerSlots slots_;
  struct alignas(64) CacheLine {
    unsigned char bytes[64];
  };
  static unsigned char* room(std::vector<CacheLine>& lines, std::size_t bytes);
  const std::vector<int> levels_;  ///< of the order of the nodes
  ops::NodeOrder node_order_;
  std::vector<const void*> source_;  ///< scratch, like the next three
  std::vector<unsigned char*> by_node_;
  std::vector<CacheLine> in_;
};

}  // namespace hvd::core

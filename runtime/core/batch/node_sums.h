/// @file node_sums.h — allreduces of small tensors between nodes: one message up the tree and one down.
///
/// A leader adds up what its node's ranks have put into their slots, and sends it along with the announcement.  The
/// coordinator's leader adds up the nodes' parts, in their order, and sends the result along with the command.  Each
/// leader leaves the result in its own slot, which nobody reads as an input any more, for its node's ranks.
/// The arithmetic is that of slices (ops/allreduce/between_nodes.h), so the bits do not depend on the way.
/// Drive side of a node's leader only.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/world.h"
#include "core/operation/operation.h"
#include "memory/node.h"
#include "negotiate/node_parts.h"
#include "ops/node_order.h"
#include "ops/shm/eager.h"

namespace hvd::core {

class NodeSums {
 public:
  /// @p pending: [ids] what this rank has submitted by bit; must outlive this, like @p node.
  NodeSums(const World& world, const memory::Node& node, const std::vector<Operation*>& pending)
      : node_(node),
        pending_(pending),
        slots_(node),
        levels_(ops::levels_of_order(static_cast<int>(world.nodes.size()), world.in_rank_order)) {}

  /// All local ranks have submitted @p id: bytes of this node's part, as it travels.  0: it does not go this way.
  std::size_t bytes(std::uint32_t id) const;
  /// Where bytes() is not 0: the sum of the local ranks' inputs.  Valid until the next call.
  std::string_view part(std::uint32_t id);
  /// The result of all nodes' parts.  @p order: [nodes] whose part is where.  Valid until the next call.
  std::string_view whole(std::uint32_t id, std::string_view parts, const std::vector<int>& order);
  /// Before the batch is published on this node.  Throws std::runtime_error where it cannot be the tensor's.
  void put(std::uint32_t id, std::string_view result);

 private:
  const Operation* summed(std::uint32_t id) const;

  const memory::Node& node_;
  const std::vector<Operation*>& pending_;
  ops::EagerSlots slots_;
  struct alignas(64) CacheLine {
    unsigned char bytes[64];
  };
  static unsigned char* room(std::vector<CacheLine>& lines, std::size_t bytes);
  const std::vector<int> levels_;  ///< of the order of the nodes
  ops::NodeOrder node_order_;
  std::vector<const void*> source_;  ///< scratch, like the next three
  std::vector<unsigned char*> by_node_;
  std::vector<CacheLine> in_, out_;
};

}  // namespace hvd::core

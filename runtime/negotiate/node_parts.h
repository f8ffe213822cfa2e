/// @file node_parts.h — nodes' parts of small tensors, on their way up the tree together with the announcements.
///
/// The parts of a subtree travel side by side and are not added up on the way: who adds them up does it in the order of
/// the nodes, so that the bits are those of a slice (ops/allreduce/between_nodes.h).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::negotiate {

/// What a leader and its coordinator hold of them.  A source is this node itself, 0, or one of its children, from 1.
class NodeParts {
 public:
  /// Parts of so many bytes travel with one message, those of all nodes below counted: more goes in slices, which
  /// cross the network in both directions at once.
  static constexpr std::size_t most_bytes = 64 << 10;

  /// @p nodes: [sources] how many there are in the subtree of each.
  NodeParts(std::uint32_t ids, const std::vector<int>& nodes);

  /// @p parts: those of the source's nodes, one after the other, each @p each bytes long.  Parts of another length than
  /// the others' spoil the tensor's: it goes in slices.
  void add(std::size_t source, std::uint32_t id, std::size_t each, std::string_view parts);
  void drop(std::uint32_t id);
  /// Every source's are here.
  bool complete(std::uint32_t id) const { return tensors_[id].sources == offset_.size() - 1 && !tensors_[id].spoilt; }
  /// Of a complete one: [nodes][each], this node's first, then each child's subtree in the same way.
  std::string_view parts(std::uint32_t id) const { return tensors_[id].bytes; }
  std::size_t each(std::uint32_t id) const { return tensors_[id].each; }
  /// Nodes of the source's subtree.
  std::size_t nodes(std::size_t source) const { return offset_[source + 1] - offset_[source]; }
  bool any() const { return held_ > 0; }

 private:
  struct Tensor {
    std::size_t each = 0, sources = 0;
    bool spoilt = false;
    std::string bytes;
  };
  std::vector<Tensor> tensors_;      ///< [ids]
  std::vector<std::size_t> offset_;  ///< [sources + 1] in nodes
  std::size_t held_ = 0;             ///< tensors of which some are here
};

}  // namespace hvd::negotiate

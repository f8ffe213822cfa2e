/// @file node_parts.h — the nodes' parts of small tensors, which travel up the tree with the announcements.
///
/// A node's part is the sum over the node's ranks.  Leaders pass on the parts of a subtree one after another in one
/// message, and do not add them.  The coordinator's leader adds all parts in the order of the nodes.  So the result has
/// the same bits as that of a tensor that travels in slices (ops/allreduce/between_nodes.h).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::negotiate {

/// The parts that a leader holds.  Source 0 is this node; sources from 1 are its children in the tree.
class NodeParts {
 public:
  /// The largest number of bytes that the parts of a subtree may have in one message.  A larger tensor travels in
  /// slices, which cross the network in both directions at once.
  static constexpr std::size_t most_bytes = 128 << 10;

  /// @p nodes: [sources] the number of nodes in each source's subtree.
  explicit NodeParts(const std::vector<int>& nodes);

  /// Stores the parts of the source's nodes: @p parts holds one after the other, each @p each bytes long.  If the
  /// lengths of two sources differ, the tensor is never complete and travels in slices.
  void add(std::size_t source, std::uint32_t id, std::size_t each, std::string_view parts);
  /// Adds this node's part.  Returns the memory that the caller must fill with the part; nullptr: the part is not
  /// needed.
  unsigned char* add_own(std::uint32_t id, std::size_t each);
  void drop(std::uint32_t id);
  /// True if the parts of all sources are here, and have the same length.
  bool complete(std::uint32_t id) const {
    return id < tensors_.size() && tensors_[id].sources == offset_.size() - 1 && !tensors_[id].spoilt;
  }
  /// The parts of a complete tensor: [nodes][each], first this node's, then each child's subtree in the same order.
  std::string_view parts(std::uint32_t id) const { return tensors_[id].bytes; }
  std::size_t each(std::uint32_t id) const { return tensors_[id].each; }
  /// True if only this node's part has arrived: the first each() bytes of parts().
  bool only_own(std::uint32_t id) const {
    return id < tensors_.size() && tensors_[id].sources == 1 && !tensors_[id].spoilt;
  }
  /// The number of nodes in the source's subtree.
  std::size_t nodes(std::size_t source) const { return offset_[source + 1] - offset_[source]; }
  bool any() const { return held_ > 0; }

 private:
  struct Tensor;
  Tensor& begin(std::uint32_t id, std::size_t each);

  struct Tensor {
    std::size_t each = 0, sources = 0;
    bool spoilt = false;
    std::string bytes;
  };
  std::vector<Tensor> tensors_;      ///< by id; as long as the largest id with parts needs
  std::vector<std::size_t> offset_;  ///< [sources + 1] index of each source's first node
  std::size_t held_ = 0;             ///< the number of tensors with parts here
};

}  // namespace hvd::negotiate

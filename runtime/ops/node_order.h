/// @file node_order.h — the one order in which the parts of all nodes are added.
///
/// The order is a tree.  Its levels are the prime factors of the number of nodes, the smallest first.  Example: 12
/// nodes have the levels 2, 2, 3.  Neighbours are added in pairs, then pairs of pairs.  Last, the three sums of four
/// nodes are added from left to right.
///
/// After each level all nodes of a group have the same sum.  So a stage of an exchange may cover one level or several.
/// Every such algorithm adds an element in the same order and gives the same bits.
#pragma once
#include <span>
#include <vector>

#include "ops/stage.h"

namespace hvd::ops {

/// The levels of the tree for @p nodes: its prime factors, the least first.  With @p left_to_right: one level.
std::vector<int> levels_of_order(int nodes, bool left_to_right);

/// The addition of the parts of an item that nodes exchange.
struct NodeReduce {
  explicit NodeReduce(const Item& item);
  ReduceFn parts;                        ///< adds parts; the sum is a part again
  ReduceFn whole;                        ///< adds parts; the sum is the result, in the item's dtype
  Scale scale;                           ///< for `whole`
  std::size_t part_bytes, result_bytes;  ///< bytes of an element of a part, and of the result
};

class NodeOrder {
 public:
  /// Adds the parts of several nodes.
  /// @param source  [product of @p levels] parts of @p elements each, in the order of the nodes.  The function may
  ///                overwrite every part except source[own]
  /// @param own     index of the part that must stay; -1: none must stay
  /// @param kept    memory for the sums that contain source[own]; may be source[own] itself
  /// @param to      receives the sum: a part, or with @p last the result in the dtype; may be @p kept
  void add_up(const NodeReduce& how, std::span<const int> levels, std::span<unsigned char* const> source, int own,
              unsigned char* kept, unsigned char* to, std::size_t elements, bool last);

 private:
  std::vector<const void*> scratch_;
};

}  // namespace hvd::ops

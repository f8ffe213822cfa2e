/// @file node_order.h — the one order in which nodes' parts are added up.
///
/// A tree over the prime factors of the number of nodes, the least first: with 12 nodes (2, 2, 3) neighbours are added
/// in pairs, then pairs of pairs, then the three fours from left to right.  With 2 or 3 nodes that is from left to
/// right. An exchange may stop at any of these levels, since all of a level's nodes then have the same sum: so every
/// algorithm that is built of such stages adds an element in the same order, whatever its place, and gives the same
/// bits.
#pragma once
#include <span>
#include <vector>

#include "ops/stage.h"

namespace hvd::ops {

/// The levels of the tree for @p nodes: prime factors, the least first.  With @p left_to_right: one level.
std::vector<int> levels_of_order(int nodes, bool left_to_right);

/// What travels of an item between nodes, and how it is added up.
struct NodeReduce {
  explicit NodeReduce(const Item& item);
  ReduceFn parts;                        ///< of parts, as they travel: a part again
  ReduceFn whole;                        ///< of parts: the result, in the dtype
  Scale scale;                           ///< of the result
  std::size_t part_bytes, result_bytes;  ///< an element
};

class NodeOrder {
 public:
  /// @param source  [product of @p levels] parts of @p elements each, in the order of the nodes.  All but source[own]
  ///                may be overwritten
  /// @param own     the part that stays; -1: all parts may be overwritten
  /// @param kept    takes the sums that contain source[own]; may be source[own] itself
  /// @param to      takes a part, or with @p last the result; may be @p kept
  void add_up(const NodeReduce& how, std::span<const int> levels, std::span<unsigned char* const> source, int own,
              unsigned char* kept, unsigned char* to, std::size_t elements, bool last);

 private:
  std::vector<const void*> scratch_;
};

}  // namespace hvd::ops

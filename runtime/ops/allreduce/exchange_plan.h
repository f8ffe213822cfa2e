/// @file exchange_plan.h — the plan of an allreduce between nodes: small groups of nodes exchange data, in stages.
///
/// A node's number is written in digits, one digit for each stage.  In a stage, the nodes whose numbers differ in this
/// digit alone form a group.  With one stage, every node sends to every other node.  Stages with groups of two are
/// recursive doubling, or halving and doubling (R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective
/// Communication Operations in MPICH", 2005).
///
/// A plan is whole or in parts.  Whole: in each stage a node sends all its data to each node of its group.  In parts:
/// each stage divides the data among the group.  After the last stage every node has reduced its own part.  Then the
/// stages run again in reverse order and exchange results.  Each byte crosses a node's link once in each direction.
///
/// An element is added in the same order in every plan (ops/node_order.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "ops/network_model.h"

namespace hvd::ops {

/// A range [begin, end) of a slice, in bytes.
using Range = std::pair<std::size_t, std::size_t>;

class ExchangePlan {
 public:
  struct ExchangeStage {
    std::vector<int> levels;  ///< levels of levels_of_order() that this stage covers
    int group = 1;            ///< nodes of a group: the product of the levels
    int apart = 1;            ///< distance between the numbers of two neighbours of a group
  };

  ExchangePlan() = default;
  /// @param levels      of levels_of_order()
  /// @param most_group  levels are joined to one stage while its group has at most this many nodes
  /// @param whole       see the head of this file
  ExchangePlan(const std::vector<int>& levels, int most_group, bool whole);
  /// The plan with the least cost() for @p bytes, cut into slices of @p slice bytes.  Nodes that give the same
  /// arguments choose the same plan.
  static ExchangePlan choose(const std::vector<int>& levels, std::size_t bytes, std::size_t slice,
                             const NetworkModel& model);

  int stages() const { return static_cast<int>(stages_.size()); }
  const ExchangeStage& stage(int s) const { return stages_[static_cast<std::size_t>(s)]; }
  bool whole() const { return whole_; }
  /// Number of exchanges of a slice.  In parts, each stage runs twice.
  int rounds() const { return whole_ ? stages() : 2 * stages(); }

  /// The digit of @p node in stage @p s: its index within its group.
  int digit(int node, int s) const { return node / stage(s).apart % stage(s).group; }
  /// The node with this digit in the group of @p node.
  int peer(int node, int s, int digit) const { return node + (digit - this->digit(node, s)) * stage(s).apart; }
  /// The part of @p all that the node with this digit holds after stage @p s.
  Range part(Range all, int s, int digit) const;
  /// Estimated time in ns for @p bytes, cut into slices of @p slice bytes.
  double cost(std::size_t bytes, std::size_t slice, const NetworkModel& model) const;

 private:
  std::vector<ExchangeStage> stages_;
  bool whole_ = true;
};

}  // namespace hvd::ops

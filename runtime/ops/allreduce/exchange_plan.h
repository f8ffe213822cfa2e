/// @file exchange_plan.h — with whom a node exchanges what in an allreduce between nodes: stages of small groups.
///
/// A node's number is written in digits, one for each stage.  In a stage a node exchanges with those that differ in
/// this digit alone.  One stage of all nodes: everybody sends to everybody.  Stages of two: recursive doubling, or
/// halving and doubling (R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in
/// MPICH", 2005). Whole: each stage exchanges all there is.  In parts: each stage divides it, until every node has a
/// part of its own reduced; then the stages are gone through backwards, with results.  Each byte crosses a node's link
/// once each way.
///
/// Whatever the stages, an element is added in the same order (ops/node_order.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "ops/network_model.h"

namespace hvd::ops {

/// [begin, end) of a slice.
using Range = std::pair<std::size_t, std::size_t>;

class ExchangePlan {
 public:
  struct ExchangeStage {
    std::vector<int> levels;  ///< of the group's size; see NodeOrder
    int group = 1;            ///< their product
    int apart = 1;            ///< nodes of a group are so far from one another
  };

  ExchangePlan() = default;
  /// @p levels: of the order.  @p most_group: stages are joined while their group has no more.
  ExchangePlan(const std::vector<int>& levels, int most_group, bool whole);
  /// The plan with the least cost() for @p bytes, cut into slices.  All nodes choose the same plan.
  static ExchangePlan choose(const std::vector<int>& levels, std::size_t bytes, std::size_t slice,
                             const NetworkModel& model);

  int stages() const { return static_cast<int>(stages_.size()); }
  const ExchangeStage& stage(int s) const { return stages_[static_cast<std::size_t>(s)]; }
  bool whole() const { return whole_; }
  /// In parts, stages are gone through twice.
  int rounds() const { return whole_ ? stages() : 2 * stages(); }

  int digit(int node, int s) const { return node / stage(s).apart % stage(s).group; }
  /// The node of the same group with that digit.
  int peer(int node, int s, int digit) const { return node + (digit - this->digit(node, s)) * stage(s).apart; }
  /// What of @p all the node with this digit goes on with after stage s.
  Range part(Range all, int s, int digit) const;
  /// Estimated time in ns for @p bytes.
  double cost(std::size_t bytes, std::size_t slice, const NetworkModel& model) const;

 private:
  std::vector<ExchangeStage> stages_;
  bool whole_ = true;
};

}  // namespace hvd::ops

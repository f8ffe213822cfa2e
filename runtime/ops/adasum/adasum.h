/// @file adasum.h — Adasum: a sum in which gradients of the same direction count once, for any number of ranks.
///
/// Source: Maleki, Musuvathi, Mytkowicz, Saarikivi, Xu, Eksarevskiy, Ekanayake,
/// Barsoum, "Scaling Distributed Training with Adaptive Summation", 2020
/// (arXiv:2006.02924).  Two vectors become
///     (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b
/// A tree applies this rule to all ranks: it combines ranks at distance 1, then 2, 4, ...  Before that, each rank
/// beyond the largest power of two is combined with one of the first ranks.  With several nodes, each node combines its
/// ranks first; then a tree over the nodes combines their results.  Each tensor is combined by itself, so fusion does
/// not change the result.
///
/// The paper halves vectors recursively between pairs.  Here a first pass computes the dot products of all pairs of
/// inputs (reduce_scatter.h).  These dot products determine every norm and dot product in the tree, and so each input's
/// factor.  A second pass is an allreduce of the inputs, multiplied by these factors.  So inputs are rounded once
/// instead of once per level, and all ranks get the same bits.  Within a node the cost is n^2 / 2 products for each
/// element.  Between nodes it is a table of nodes^2 / 2 numbers for each tensor.
#pragma once
#include <memory>
#include <vector>

#include "common/types.h"
#include "ops/allreduce/between_nodes.h"
#include "ops/allreduce/shm.h"
#include "ops/reduce_scatter/reduce_scatter.h"

namespace hvd::ops {

/// Returns the factor of each of @p n inputs.  dots: [n * (n + 1) / 2], in the order of DotsFn (cpu_kernels.h).
std::vector<double> adasum_factors(const double* dots, int n);

/// A floating-point tensor; item.reduce is the sum.
struct AdasumTensor {
  Item item;
  DType dtype = DType::f32;
};

class Adasum final : public Stage {
 public:
  Adasum(Rings& rings, const Nodes& nodes, transport::Transport& transport, std::vector<AdasumTensor> tensors);
  ~Adasum() override;
  bool step() override;
  bool done() const override { return phase_ == Phase::finished; }

 private:
  enum class Phase { node_dots, node_sums, cross_dots, cross_sums, result, finished };
  class Dots;
  void begin_dots(const Nodes& nodes);
  void begin_sums(bool everywhere);
  void begin_result();
  void begin_stream(bool everywhere);
  /// Starts the next phase; called when the stage of this phase is done.
  void advance();

  Rings& rings_;
  const Nodes& nodes_;
  transport::Transport& transport_;
  std::vector<AdasumTensor> tensors_;
  Nodes here_;  ///< this node alone, its ranks numbered from 0
  Phase phase_ = Phase::node_dots;
  std::unique_ptr<Dots> dots_;
  std::unique_ptr<ReduceScatter> shards_;
  std::vector<double> products_;              ///< [tensors][pairs]
  std::vector<std::vector<double>> weights_;  ///< [tensors][local ranks]
  Stream stream_;
  BetweenNodes between_nodes_;
  ShmAllreduce allreduce_;
  Stage* stage_ = nullptr;
};

}  // namespace hvd::ops

/// @file adasum.h — Adasum: a sum in which gradients that point the same way count once, for any number of ranks.
///
/// Source: Maleki, Musuvathi, Mytkowicz, Saarikivi, Xu, Eksarevskiy, Ekanayake,
/// Barsoum, "Scaling Distributed Training with Adaptive Summation", 2020
/// (arXiv:2006.02924).  Two vectors become
///     (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b
/// and a tree of this rule combines all: ranks at distance 1, 2, 4, ...; those
/// beyond the largest power of two are combined with the first ranks before.
/// Over several nodes the tree of each node comes first, then one over the nodes.
/// Every tensor by itself, so fusion changes nothing.
///
/// The paper halves vectors recursively between pairs.  Here one pass computes
/// the dot products of all pairs of inputs (reduce_scatter.h), which is enough to know
/// every norm and dot product in the tree, hence the factor of every input; a
/// second pass is an ordinary allreduce with these factors.  So staging stays
/// small, the inputs are rounded once, not once a level, and all ranks have the
/// same bits.  The price is n^2 / 2 products an element within a node, and a
/// table of nodes^2 / 2 numbers a tensor between nodes.
#pragma once
#include <memory>
#include <vector>

#include "common/types.h"
#include "ops/allreduce/between_nodes.h"
#include "ops/allreduce/shm.h"
#include "ops/reduce_scatter/reduce_scatter.h"

namespace hvd::ops {

/// The factor of each of @p n inputs.  dots: [n * (n + 1) / 2], pairs as in cpu_kernels.h.
std::vector<double> adasum_factors(const double* dots, int n);

/// A floating-point tensor; item.reduce adds.
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
  /// The phase under way is over.
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

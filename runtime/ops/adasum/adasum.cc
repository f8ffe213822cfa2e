#include "ops/adasum/adasum.h"

#include <cmath>

namespace hvd::ops {
namespace {

std::size_t pairs(int n) { return static_cast<std::size_t>(n) * static_cast<std::size_t>(n + 1) / 2; }

/// Vectors, each a linear combination of the inputs.  The dot products of all inputs are known.
class Tree {
 public:
  Tree(const double* dots, int n) : dots_(dots), n_(static_cast<std::size_t>(n)), vectors_(n_ * n_) {
    for (std::size_t i = 0; i < n_; ++i) vector(i)[i] = 1;
  }
  /// Replaces vector a by Adasum's combination of a and b.
  void combine(std::size_t a, std::size_t b) {
    const double ab = dot(a, b);
    const double fa = factor(a, ab), fb = factor(b, ab);
    for (std::size_t i = 0; i < n_; ++i) vector(a)[i] = fa * vector(a)[i] + fb * vector(b)[i];
  }
  std::vector<double> first() const { return {vectors_.begin(), vectors_.begin() + static_cast<std::ptrdiff_t>(n_)}; }

 private:
  double* vector(std::size_t i) { return vectors_.data() + i * n_; }
  double product(std::size_t i, std::size_t j) const {
    if (i > j) std::swap(i, j);
    return dots_[i * n_ - i * (i - 1) / 2 + j - i];
  }
  double dot(std::size_t a, std::size_t b) {
    double sum = 0;
    for (std::size_t i = 0; i < n_; ++i) {
      if (vector(a)[i] == 0) continue;
      for (std::size_t j = 0; j < n_; ++j)
        // This order, large * tiny * large, keeps each product in double's range.
        if (vector(b)[j] != 0) sum += vector(a)[i] * product(i, j) * vector(b)[j];
    }
    return sum;
  }
  /// The factor of vector a.  A vector that consists of rounding errors has no direction.  The factor of such a vector
  /// is 1, like a zero vector's.  The factor is also 1 if the squares are too small for a double's full precision.  No
  /// f32 vector is that small.
  double factor(std::size_t a, double ab) {
    constexpr double rounding = 1e-11, least_square = 0x1p-960;
    double length = 0;  // the length if nothing had cancelled
    for (std::size_t i = 0; i < n_; ++i) length += std::fabs(vector(a)[i]) * std::sqrt(product(i, i));
    const double norm = dot(a, a);
    return norm <= least_square || norm <= rounding * length * length ? 1.0 : 1.0 - ab / (2 * norm);
  }
  const double* dots_;
  const std::size_t n_;
  std::vector<double> vectors_;  ///< [n][n]
};

}  // namespace

std::vector<double> adasum_factors(const double* dots, int n) {
  Tree tree(dots, n);
  const auto count = static_cast<std::size_t>(n);
  std::size_t power = 1;
  while (power * 2 <= count) power *= 2;
  for (std::size_t i = power; i < count; ++i) tree.combine(i - power, i);
  for (std::size_t distance = 1; distance < power; distance *= 2)
    for (std::size_t i = 0; i < power; i += 2 * distance) tree.combine(i, i + distance);
  return tree.first();
}

/// Adds the dot products over this rank's part of every tensor.
class Adasum::Dots final : public ShardSink {
 public:
  Dots(const std::vector<AdasumTensor>& tensors, int n)
      : tensors_(tensors),
        n_(n),
        sums_(tensors.size() * pairs(n) * 8),
        scratch_(static_cast<std::size_t>(n) * dot_block) {}
  void take(std::size_t which, std::size_t, const void* const* src, int n, std::size_t bytes) override {
    const AdasumTensor& t = tensors_[which];
    dots(t.dtype)(src, n, bytes / t.item.element_bytes, sums_.data() + which * pairs(n_) * 8, scratch_.data());
  }
  /// [tensors][pairs]
  std::vector<double> products() const {
    std::vector<double> all;
    for (std::size_t i = 0; i < sums_.size(); i += 8) {
      double sum = 0;
      for (std::size_t k = 0; k < 8; ++k) sum += sums_[i + k];
      all.push_back(sum);
    }
    return all;
  }
  int vectors() const { return n_; }

 private:
  const std::vector<AdasumTensor>& tensors_;
  const int n_;
  std::vector<double> sums_, scratch_;
};

Adasum::Adasum(Rings& rings, const Nodes& nodes, transport::Transport& transport, std::vector<AdasumTensor> tensors)
    : rings_(rings),
      nodes_(nodes),
      transport_(transport),
      tensors_(std::move(tensors)),
      between_nodes_(nodes, transport),
      allreduce_(rings) {
  here_.ranks.emplace_back();
  for (int l = 0; l < rings.ranks; ++l) {
    here_.ranks.front().push_back(l);
    here_.local_of.push_back(l);
    here_.node_of.push_back(0);
  }
  here_.local = nodes.local;
  weights_.assign(tensors_.size(), std::vector<double>(static_cast<std::size_t>(rings.ranks), 1.0));
  dots_ = std::make_unique<Dots>(tensors_, rings.ranks);
  begin_dots(here_);
}

Adasum::~Adasum() = default;

bool Adasum::step() {
  if (done()) return false;
  const bool moved = !stage_->done() && stage_->step();
  if (!stage_->done()) return moved;
  advance();
  return true;
}

void Adasum::advance() {
  const bool several = nodes_.count() > 1;
  const auto factors_of = [this](std::size_t t) {
    const int n = dots_->vectors();
    return adasum_factors(products_.data() + t * pairs(n), n);
  };
  switch (phase_) {
    case Phase::node_dots:
      phase_ = Phase::node_sums;
      begin_sums(false);
      break;
    case Phase::node_sums:
      for (std::size_t t = 0; t < tensors_.size(); ++t) weights_[t] = factors_of(t);
      for (std::size_t t = 0; t < tensors_.size(); ++t) tensors_[t].item.scale.weights = weights_[t].data();
      phase_ = several ? Phase::cross_dots : Phase::result;
      if (several) {
        dots_ = std::make_unique<Dots>(tensors_, nodes_.count());
        begin_dots(nodes_);
      } else {
        begin_result();
      }
      break;
    case Phase::cross_dots:
      phase_ = Phase::cross_sums;
      begin_sums(true);
      break;
    case Phase::cross_sums:
      for (std::size_t t = 0; t < tensors_.size(); ++t) {
        const double mine = factors_of(t)[static_cast<std::size_t>(nodes_.node)];
        for (double& w : weights_[t]) w *= mine;
      }
      phase_ = Phase::result;
      begin_result();
      break;
    case Phase::result:
    case Phase::finished:
      phase_ = Phase::finished;
      break;
  }
}

void Adasum::begin_dots(const Nodes& nodes) {
  std::vector<DividedTensor> tensors;  // divided into lines of 64 bytes, so that every piece begins at a line
  for (const AdasumTensor& t : tensors_)
    tensors.push_back({t.item, static_cast<std::int64_t>((t.item.bytes + 63) / 64), 64});
  shards_ = std::make_unique<ReduceScatter>(rings_, nodes, transport_, std::move(tensors), dots_.get());
  stage_ = shards_.get();
}

/// Starts an allreduce that adds the dot products of all parts, in an order that depends on the ranks only.
/// @p everywhere: of all nodes, not of this node alone.
void Adasum::begin_sums(bool everywhere) {
  products_ = dots_->products();
  auto* data = reinterpret_cast<unsigned char*>(products_.data());
  Item item;
  item.in = item.out = data;
  item.bytes = products_.size() * sizeof(double);
  item.element_bytes = sizeof(double);
  item.reduce = reducer(DType::f64, Reduce::sum);
  stream_.clear();
  stream_.add(item);
  begin_stream(everywhere);
}

void Adasum::begin_result() {
  stream_.clear();
  for (const AdasumTensor& t : tensors_) stream_.add(t.item);
  begin_stream(nodes_.count() > 1);
}

void Adasum::begin_stream(bool everywhere) {
  const Cut cut = allreduce_.cut(stream_, everywhere ? nodes_.carriers() : rings_.ranks);
  if (everywhere) between_nodes_.begin(stream_, cut);
  allreduce_.begin(stream_, cut, everywhere ? &between_nodes_ : nullptr);
  stage_ = &allreduce_;
}

}  // namespace hvd::ops

#include "ops/movement/movement.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "base/error.h"
#include "memory/result_memory.h"

namespace hvd::ops {
namespace {

/// Memory for a result, which its owner frees with free().  Throws Error{unavailable} if there is none.
void* allocate(const MovedTensor& p, std::size_t bytes) {
  void* const result = memory::ResultMemory::process().take(bytes);
  if (!result)
    throw Error(Code::unavailable, name_of(p.kind), "no memory for a result of " + std::to_string(bytes) + " bytes");
  return result;
}

}  // namespace

Movement::Movement(Rings& rings, const Nodes& nodes, transport::Transport& transport,
                   std::vector<MovedTensor> moved_tensors)
    : rings_(rings), nodes_(nodes), transport_(transport), tensors_(std::move(moved_tensors)) {
  for (const MovedTensor& p : tensors_) {
    if (p.kind == Kind::allgather) my_rows_.push_back(p.rows);
    if (p.kind == Kind::alltoall) ++alltoalls_;
  }
  if (my_rows_.empty() && alltoalls_ == 0)
    begin_data();
  else
    begin_lengths();
}

Movement::~Movement() {
  for (const MovedTensor& p : tensors_) std::free(p.result);
}

bool Movement::step() {
  if (!data_) {
    const bool moved = lengths_->step();
    if (!lengths_->done()) return moved;
    begin_data();
    return true;
  }
  const bool moved = data_->step();
  if (!data_->done() || next_root_ == roots_.size()) return moved;
  begin_broadcasts();
  return true;
}

/// Exchanges the numbers of rows.  Allgather: of every rank.  Alltoall: from each local rank to each local rank, and
/// from ranks of other nodes to this rank.
void Movement::begin_lengths() {
  constexpr std::size_t number = sizeof(std::int64_t);
  my_counts_.resize(size() * alltoalls_);
  std::size_t which = 0;
  for (const MovedTensor& p : tensors_) {
    if (p.kind != Kind::alltoall) continue;
    for (int l = 0; l < static_cast<int>(locals()); ++l) my_local_.push_back(p.splits[nodes_.rank(nodes_.node, l)]);
    for (std::size_t r = 0; r < size(); ++r) my_counts_[r * alltoalls_ + which] = p.splits[r];
    ++which;
  }
  rows_.resize(my_rows_.size() * size());
  local_.resize(my_local_.size() * locals());
  counts_.resize(my_counts_.size());
  TransferPlan load(nodes_);
  for (int r = 0; r < static_cast<int>(size()); ++r)
    load.to_all(r, my_rows_.data(), rows_.data() + static_cast<std::size_t>(r) * my_rows_.size(),
                my_rows_.size() * number);
  for (int l = 0; l < static_cast<int>(locals()); ++l)
    load.to_node(l, my_local_.data(), local_.data() + static_cast<std::size_t>(l) * my_local_.size(),
                 my_local_.size() * number);
  for (int r = 0; alltoalls_ > 0 && r < static_cast<int>(size()); ++r) {
    if (nodes_.node_of[static_cast<std::size_t>(r)] == nodes_.node) continue;
    const std::size_t at = static_cast<std::size_t>(r) * alltoalls_;
    load.send(r, my_counts_.data() + at, alltoalls_ * number);
    load.receive(r, counts_.data() + at, alltoalls_ * number);
  }
  lengths_ = std::make_unique<Transfer>(rings_, nodes_, transport_, load);
}

/// Starts the pass of all allgathers and alltoalls.  The broadcasts follow, one pass for each root.
void Movement::begin_data() {
  for (const MovedTensor& p : tensors_)
    if (p.kind == Kind::broadcast && std::find(roots_.begin(), roots_.end(), p.root) == roots_.end())
      roots_.push_back(p.root);
  if (my_rows_.empty() && alltoalls_ == 0 && !roots_.empty()) return begin_broadcasts();
  TransferPlan load(nodes_);
  std::size_t gathers = 0, alltoalls = 0;
  for (MovedTensor& p : tensors_) {
    if (p.kind == Kind::allgather) {
      for (std::size_t r = 0; r < size(); ++r) p.received.push_back(rows_[r * my_rows_.size() + gathers]);
      ++gathers;
      add_gather(load, p);
    } else if (p.kind == Kind::alltoall) {
      add_alltoall(load, p, alltoalls++);
    }
  }
  lengths_.reset();
  data_ = std::make_unique<Transfer>(rings_, nodes_, transport_, load);
}

void Movement::begin_broadcasts() {
  TransferPlan load(nodes_);
  const int root = roots_[next_root_++];
  load.only(root);
  for (const MovedTensor& p : tensors_)
    if (p.kind == Kind::broadcast && p.root == root) load.to_all(root, p.in, p.out, p.row_bytes);
  data_ = std::make_unique<Transfer>(rings_, nodes_, transport_, load);
}

void Movement::add_gather(TransferPlan& load, MovedTensor& p) {
  const std::int64_t rows = std::accumulate(p.received.begin(), p.received.end(), std::int64_t{0});
  p.result = allocate(p, static_cast<std::size_t>(rows) * p.row_bytes);
  auto* to = static_cast<unsigned char*>(p.result);
  for (std::size_t r = 0; r < size(); ++r) {
    const std::size_t bytes = static_cast<std::size_t>(p.received[r]) * p.row_bytes;
    load.to_all(static_cast<int>(r), p.in, to, bytes);
    to += bytes;
  }
}

void Movement::add_alltoall(TransferPlan& load, MovedTensor& p, std::size_t which) {
  // Rows from local rank a to local rank b.
  const auto between = [&](std::size_t a, std::size_t b) { return local_[(a * alltoalls_ + which) * locals() + b]; };
  for (std::size_t r = 0; r < size(); ++r) {
    const bool here = nodes_.node_of[r] == nodes_.node;
    p.received.push_back(
        here ? between(static_cast<std::size_t>(nodes_.local_of[r]), static_cast<std::size_t>(nodes_.local))
             : counts_[r * alltoalls_ + which]);
  }
  const std::int64_t rows = std::accumulate(p.received.begin(), p.received.end(), std::int64_t{0});
  const std::size_t bytes = static_cast<std::size_t>(rows) * p.row_bytes;
  if (!p.out || p.out_bytes != bytes) p.result = allocate(p, bytes);
  std::vector<const unsigned char*> from(size());
  std::vector<unsigned char*> to(size());
  const unsigned char* in = p.in;
  auto* out = p.result ? static_cast<unsigned char*>(p.result) : p.out;
  for (std::size_t r = 0; r < size(); ++r) {
    from[r] = in, to[r] = out;
    in += static_cast<std::size_t>(p.splits[r]) * p.row_bytes;
    out += static_cast<std::size_t>(p.received[r]) * p.row_bytes;
    if (nodes_.node_of[r] == nodes_.node) continue;
    load.send(static_cast<int>(r), from[r], static_cast<std::size_t>(p.splits[r]) * p.row_bytes);
    load.receive(static_cast<int>(r), to[r], static_cast<std::size_t>(p.received[r]) * p.row_bytes);
  }
  for (std::size_t a = 0; a < locals(); ++a)
    for (std::size_t b = 0; b < locals(); ++b) {
      const auto ra = static_cast<std::size_t>(nodes_.rank(nodes_.node, static_cast<int>(a)));
      const auto rb = static_cast<std::size_t>(nodes_.rank(nodes_.node, static_cast<int>(b)));
      load.to_neighbour(static_cast<int>(a), static_cast<int>(b), from[rb], to[ra],
                        static_cast<std::size_t>(between(a, b)) * p.row_bytes);
    }
}

}  // namespace hvd::ops

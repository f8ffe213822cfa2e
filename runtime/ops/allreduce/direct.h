/// @file direct.h — allreduce of tensors in registered memory, straight between the arrays of the ranks of a node.
///
/// Once a batch is published, all its tensors are readable.  Each rank adds its slice over all ranks' arrays, in rank
/// order, and stores the sum in all of them.  Slices do not overlap, so ranks wait for each other only at the end.
/// With two ranks, each byte is read and written once.  Streaming through the rings reads and writes each byte twice,
/// and waits at every chunk.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "memory/node.h"
#include "ops/shm/rings.h"
#include "ops/stage.h"

namespace hvd::ops {

/// Tells which tensors lie in memory that all ranks of the node can reach.  All ranks get the same answer.
class RegisteredTensors {
 public:
  explicit RegisteredTensors(const memory::Node& node) : node_(node) {}
  /// True if every rank of the node has tensor @p id in memory that all of them can reach.  @p parity: of the round.
  /// Call it after the batch was published.  False on a node with one rank.
  bool registered(std::uint32_t id, unsigned parity);

 private:
  bool reach_all();
  const memory::Node& node_;
  std::optional<bool> reach_all_;
};

class DirectAllreduce final : public Stage {
 public:
  explicit DirectAllreduce(Rings& rings) : rings_(rings) {}
  void clear();
  /// Adds a tensor for which registered() is true.  @p item: this rank's tensor; add() sets item.at in its own copy.
  void add(Item item, std::uint32_t id, unsigned parity);
  /// Call it after clear() and add().  Every rank of the node must have added the same tensors in the same order.
  void begin();
  bool step() override;
  bool done() const override { return done_; }
  bool empty() const { return stream_.items.empty(); }
  std::size_t bytes() const { return stream_.bytes; }

 private:
  void reduce(std::size_t begin, std::size_t end);
  Rings& rings_;
  Stream stream_;
  std::vector<unsigned char*> in_, out_;  ///< [items][ranks]
  std::uint64_t batch_ = 0;               ///< number of batches with registered tensors; equal on all ranks
  std::size_t at_ = 0, end_ = 0;          ///< the part of this rank's slice that is not reduced yet
  bool posted_ = false, done_ = true;
};

}  // namespace hvd::ops

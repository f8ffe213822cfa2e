/// @file direct.h — allreduce of tensors in registered memory, straight between the ranks' arrays.
///
/// Once a batch is published all its tensors are readable.  Each rank adds its
/// own slice over all ranks' arrays, in rank order, and stores it in all of them:
/// slices do not overlap, so one counter at the end is all that ranks wait for.
/// For two ranks each byte is read and written once, by one of them; streaming
/// through the rings reads and writes it twice, and waits at every chunk.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "memory/node.h"
#include "ops/shm/rings.h"
#include "ops/stage.h"

namespace hvd::ops {

/// Where a tensor lies in every rank's arena.  The same answer on all ranks.
class RegisteredTensors {
 public:
  explicit RegisteredTensors(const memory::Node& node) : node_(node) {}
  /// True when all ranks of the node have tensor @p id of this round in memory that all of them can reach.
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
  /// @p item: this rank's own; its place in the stream is set here.
  void add(Item item, std::uint32_t id, unsigned parity);
  /// After clear() and add(); every rank of the node has added the same tensors.
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
  std::uint64_t batch_ = 0;               ///< batches with registered tensors so far, counted alike on all ranks
  std::size_t at_ = 0, end_ = 0;          ///< of this rank's slice
  bool posted_ = false, done_ = true;
};

}  // namespace hvd::ops

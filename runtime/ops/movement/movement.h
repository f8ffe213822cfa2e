/// @file movement.h — the allgathers, broadcasts and alltoalls of a batch, executed together.
///
/// First the ranks exchange, once for the whole batch, the lengths that differ from rank to rank.  Then one pass moves
/// the data of all allgathers and alltoalls.  Then one pass for each root moves its broadcasts.  So many small
/// allgathers take about as long as one.
#pragma once
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/types.h"
#include "ops/movement/transfer.h"

namespace hvd::ops {

/// An operation that moves bytes without changing them.
struct MovedTensor {
  Kind kind = Kind::broadcast;
  const unsigned char* in = nullptr;
  unsigned char* out = nullptr;          ///< broadcast: the result; alltoall: the result, if it has exactly out_bytes
  std::size_t out_bytes = 0;             ///< alltoall: bytes of `out`
  std::size_t row_bytes = 0;             ///< bytes of a row; broadcast: of the whole tensor
  std::int64_t rows = 0;                 ///< allgather: rows of this rank
  int root = 0;                          ///< broadcast only
  const std::int64_t* splits = nullptr;  ///< alltoall: [size] rows for each rank
  /// allgather, alltoall: the data of all ranks, in rank order, in memory of malloc().  After take() the caller owns
  /// it. nullptr: the result is in `out`.
  void* result = nullptr;
  std::vector<std::int64_t> received;  ///< allgather, alltoall: [size] rows from each rank
};

class Movement final : public Stage {
 public:
  Movement(Rings& rings, const Nodes& nodes, transport::Transport& transport, std::vector<MovedTensor> moved_tensors);
  ~Movement() override;
  bool step() override;
  bool done() const override { return data_ && data_->done() && next_root_ == roots_.size(); }
  /// The operations with their results, which the caller then owns.  Call it once, after done().
  std::vector<MovedTensor> take() { return std::exchange(tensors_, {}); }

 private:
  void begin_lengths();
  void begin_data();
  void begin_broadcasts();
  void add_gather(TransferPlan& load, MovedTensor& p);
  void add_alltoall(TransferPlan& load, MovedTensor& p, std::size_t which);
  std::size_t size() const { return nodes_.node_of.size(); }
  std::size_t locals() const { return static_cast<std::size_t>(nodes_.local_size(nodes_.node)); }
  int me() const { return nodes_.rank(nodes_.node, nodes_.local); }

  Rings& rings_;
  const Nodes& nodes_;
  transport::Transport& transport_;
  std::vector<MovedTensor> tensors_;
  std::size_t alltoalls_ = 0;
  // Numbers of rows: of this rank, and of the others.
  std::vector<std::int64_t> my_rows_, rows_;      ///< of allgathers: [gathers]; [size][gathers]
  std::vector<std::int64_t> my_local_, local_;    ///< to local ranks: [alltoalls][locals]; [locals][alltoalls][locals]
  std::vector<std::int64_t> my_counts_, counts_;  ///< to, and from, ranks of other nodes: [size][alltoalls]
  std::vector<int> roots_;                        ///< the roots of the broadcasts, each once
  std::size_t next_root_ = 0;
  std::unique_ptr<Transfer> lengths_, data_;
};

}  // namespace hvd::ops

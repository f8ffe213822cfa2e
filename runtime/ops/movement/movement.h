/// @file movement.h — allgather, broadcast and alltoall: all of a batch together.
///
/// Lengths that differ from rank to rank are exchanged once for the whole batch,
/// then all their data goes in one pass, and what each root broadcasts in one of its own.  So many small gathers cost
/// what one does.
#pragma once
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/types.h"
#include "ops/movement/transfer.h"

namespace hvd::ops {

/// One operation that moves bytes as they are.
struct MovedTensor {
  Kind kind = Kind::broadcast;
  const unsigned char* in = nullptr;
  unsigned char* out = nullptr;  ///< broadcast; alltoall: for a result of out_bytes
  std::size_t out_bytes = 0;
  std::size_t row_bytes = 0;             ///< broadcast: of the whole tensor
  std::int64_t rows = 0;                 ///< allgather: of this rank
  int root = 0;                          ///< broadcast
  const std::int64_t* splits = nullptr;  ///< alltoall: [size] rows for each rank
  void* result = nullptr;                ///< allgather, alltoall: malloc'd when done, by rank; now the caller's.
                                         ///< nullptr: it is in `out`
  std::vector<std::int64_t> received;    ///< allgather, alltoall: [size] rows from each rank
};

class Movement final : public Stage {
 public:
  Movement(Rings& rings, const Nodes& nodes, transport::Transport& transport, std::vector<MovedTensor> moved_tensors);
  ~Movement() override;
  bool step() override;
  bool done() const override { return data_ && data_->done() && next_root_ == roots_.size(); }
  /// Once done; takes over the results.
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
  std::vector<std::int64_t> my_rows_, rows_;      ///< [gathers]; [size][gathers]
  std::vector<std::int64_t> my_local_, local_;    ///< [alltoalls][locals]; the same of every local rank in front
  std::vector<std::int64_t> my_counts_, counts_;  ///< [size][alltoalls]: to and from the ranks of other nodes
  std::vector<int> roots_;                        ///< of the broadcasts
  std::size_t next_root_ = 0;
  std::unique_ptr<Transfer> lengths_, data_;
};

}  // namespace hvd::ops

/// @file communicator_group.h — all the NCCL communicators of one process set: one for each slot, and those by node.
///
/// A slot is a stream with communicators of its own.  The batches of a set take
/// the slots in turn, so that one whose tensors come late holds up no other.
/// With sums by nodes a slot has two more communicators: the ranks of this rank's
/// node, and those with its place on every node.
///
/// Order.  A kernel of NCCL waits on the device for its peers', and holds its
/// multiprocessors meanwhile.  If rank 0 runs A and keeps B out, and rank 1 runs B
/// and keeps A out, both wait for ever.  That cannot happen here:
///  - Within a slot all ranks queue the same calls in the same order: batches come
///    in the coordinator's order, the n-th takes slot n mod slots, and a batch calls
///    NCCL in an order that depends only on what the ranks agree on.  Its kernels
///    run in that order, for they are on one stream.
///  - Between slots, and between sets, which start when their tensors are there,
///    the order differs from rank to rank, and no order of the calls would change
///    that.  So none may keep another out: together they never hold more than the
///    device has (multiprocessor_share.h), and each runs whatever the others wait for.
///  - Nothing here asks CUDA to wait for the device, in which another slot's kernel
///    may wait for us: see Gpu.
/// One order of all calls on one stream would do as well, but then a late tensor
/// holds up all sets.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "gpu/nccl/communicator.h"

namespace hvd::nccl {

/// Where this rank is among the nodes of its set, which all have as many of its ranks.
struct NodeLayout {
  int count = 1, node = 0;  ///< this one of so many
  int ranks = 1, local = 0;
  bool any() const { return count > 1 && ranks > 1; }
  int rank_of(int on_node, int at) const { return of[static_cast<std::size_t>(on_node * ranks + at)]; }
  std::vector<int> of;  ///< [count * ranks] the set's ranks, node by node
};

class CommunicatorGroup {
 public:
  struct Slot {
    Communicator* whole;
    Communicator *inside, *across;  ///< nullptr: no sums by nodes
  };
  /// @param whole   of the first slot: all ranks of the set; the others are split from it, so it must be fresh
  /// @param slots   more than one, or nodes.any(): only where the library has ncclCommSplit
  /// @param blocks  for each slot, see Communicator
  CommunicatorGroup(std::unique_ptr<Communicator> whole, int slots, const NodeLayout& nodes, int blocks);

  /// All are made.  Begins the next one when that before is.  Throws Error.
  bool made();
  /// Only when made.
  Slot slot(std::size_t i) const { return slots_[i]; }
  std::size_t slots() const { return count_; }
  /// Throws Error when something has failed in one of them.
  void watch();
  /// A communicator for a part of the set (or none here: color no_color): split from the first slot, whose rules apply.
  std::unique_ptr<Communicator> split(int color, int rank, int size, int blocks);
  /// Ends all of them, and waits for that, but not for ever.
  void abort() noexcept;

 private:
  void make_next();
  const std::size_t count_;
  const NodeLayout nodes_;
  const int blocks_;
  std::vector<std::unique_ptr<Communicator>> all_;  ///< whole of each slot, then inside and across of each
  std::vector<Slot> slots_;                         ///< when all are made
};

}  // namespace hvd::nccl

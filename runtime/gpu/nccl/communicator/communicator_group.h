/// @file communicator_group.h — all NCCL communicators of one process set: those of each slot, and those by nodes.
///
/// A slot is a stream with its own communicators.  Batch n of a set uses slot n mod slots.  So a batch with late
/// tensors does not delay the next batch.  With sums by nodes, a slot has two more communicators.  One joins the ranks
/// of this node, the other the ranks with the same place on every node.
///
/// Deadlocks.  A kernel of NCCL waits on the device for the kernels of its peers, and occupies multiprocessors
/// meanwhile.  Say that rank 0 runs kernel A, which leaves no room for kernel B.  Rank 1 runs B, which leaves no room
/// for A.  Then both ranks wait for ever.  The following rules prevent that:
/// - Within a slot, all ranks queue the same calls in the same order.  Batches come in the coordinator's order, and
///   batch n uses slot n mod slots.  The order of NCCL calls in a batch depends only on facts that the ranks agree on.
///   The kernels run in that order, since they are on one stream.
/// - Slots and sets start when their tensors are ready.  So their order differs between ranks, and an order of the NCCL
///   calls would not help.  Therefore the kernels of all slots and sets must fit on the device together
///   (multiprocessor_share.h).  Then each kernel runs, even while others wait.
/// - No slot asks CUDA to wait for the device, where another slot's kernel may wait for this rank: see DeviceWork.
/// One order of all calls on one stream would also prevent deadlocks.  But then a late tensor would delay all sets.
#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "gpu/nccl/communicator/communicator.h"

namespace hvd::nccl {

/// The place of this rank among the nodes of its set.  Every node has the same number of the set's ranks.
struct NodeLayout {
  int count = 1, node = 0;  ///< number of nodes; the node of this rank
  int ranks = 1, local = 0;
  bool any() const { return count > 1 && ranks > 1; }
  int rank_of(int on_node, int at) const { return of[static_cast<std::size_t>(on_node * ranks + at)]; }
  std::vector<int> of;  ///< [count * ranks] The ranks of the set, node by node.
};

/// The engine's thread may call watch(), abort() and complete() at any time, and made() while the LaunchThread is idle.
/// The LaunchThread of the set calls all other functions.
class CommunicatorGroup {
 public:
  struct Slot {
    Communicator* whole;
    Communicator *inside, *across;  ///< nullptr: no operations by nodes
  };
  struct Form {
    int slots = 1;          ///< more than one slot needs ncclCommSplit, and so do nodes.any() and `blocking`
    int blocks = 0;         ///< of each slot, see Communicator
    bool blocking = false;  ///< communicators for data are split from a root, which itself carries no data
    /// [slots] memory of each slot that becomes a window of its communicator; empty: no windows.
    std::vector<RegisteredMemory::Block> windows = {};
  };
  /// @param root   makes a communicator of all ranks of the set, from which nothing has been split
  CommunicatorGroup(std::function<std::shared_ptr<Communicator>()> root, const NodeLayout& nodes, const Form& form);

  /// Returns true when all communicators are made, and no split of the root is in progress.  Otherwise continues to
  /// make them.  Throws Error.
  bool made();
  /// Returns true after made() has returned true.
  bool complete() const { return complete_.load(std::memory_order_acquire); }
  /// Only when complete().
  Slot slot(std::size_t i) const { return slots_[i]; }
  /// Splits a communicator for a part of the set.  See Communicator::split() for the rules and the result.
  std::unique_ptr<Communicator> split(int color, const Communicator::Subset& part);

  /// Returns true when abort() has been called and NCCL has ended all communicators.
  bool ended();
  /// Returns the number of windows that NCCL has made.  Call it only when complete().
  std::size_t windows() const;

  /// Throws Error when a communicator has failed.  at_rest: the LaunchThread is idle.  Otherwise watch() checks only
  /// the blocking communicators, and the thread itself checks the others.
  void watch(bool at_rest);
  /// Ends all communicators, and waits for their end, at most for @p limit.
  void abort(std::chrono::milliseconds limit = std::chrono::milliseconds(500)) noexcept;

 private:
  void make_next();
  void add(std::shared_ptr<Communicator> made);
  std::size_t moving(std::size_t i) const { return i + (form_.blocking ? 1 : 0); }

  std::function<std::shared_ptr<Communicator>()> root_;
  const NodeLayout& nodes_;
  const Form form_;
  std::mutex mutex_;  ///< for aborted_ and all_, which both threads use
  bool aborted_ = false;
  /// The root, then `whole` of each slot, then `inside` and `across` of each slot.  Without `blocking`, the root is
  /// `whole` of the first slot.
  std::vector<std::shared_ptr<Communicator>> all_;
  std::vector<Slot> slots_;  ///< filled when all communicators are made
  std::size_t begun_windows_ = 0;
  std::atomic<bool> complete_{false};
};

}  // namespace hvd::nccl

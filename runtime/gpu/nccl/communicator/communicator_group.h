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
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "gpu/nccl/communicator/communicator.h"

namespace hvd::nccl {

/// Where this rank is among the nodes of its set, which all have as many of its ranks.
struct NodeLayout {
  int count = 1, node = 0;  ///< nodes, and the number of this one
  int ranks = 1, local = 0;
  bool any() const { return count > 1 && ranks > 1; }
  int rank_of(int on_node, int at) const { return of[static_cast<std::size_t>(on_node * ranks + at)]; }
  std::vector<int> of;  ///< [count * ranks] the set's ranks, node by node
};

/// On the set's LaunchThread, but for watch() and abort(): those on the engine's, at any time.
class CommunicatorGroup {
 public:
  struct Slot {
    Communicator* whole;
    Communicator *inside, *across;  ///< nullptr: no sums by nodes
  };
  struct Form {
    int slots = 1;          ///< more than one, or nodes.any(), or blocking: only where the library has ncclCommSplit
    int blocks = 0;         ///< for each slot, see Communicator
    bool blocking = false;  ///< what moves data is split from a root that does nothing else
  };
  /// @param root   makes one of all ranks of the set, that nothing was split from
  CommunicatorGroup(std::function<std::shared_ptr<Communicator>()> root, const NodeLayout& nodes, const Form& form);

  /// All are made, and nothing is being split from the root.  Begins the next one when that before is.  Throws Error.
  bool made();
  /// made() has been true.
  bool complete() const { return complete_.load(std::memory_order_acquire); }
  /// Only when complete().
  Slot slot(std::size_t i) const { return slots_[i]; }
  /// A communicator for a part of the set (or none here: color no_color), whose rules see there.
  std::unique_ptr<Communicator> split(int color, const Communicator::Subset& part);

  /// Throws Error when something has failed in one of them.  at_rest: the thread is.  Else it looks itself after what
  /// is being made, and after what does not block.
  void watch(bool at_rest);
  /// Ends all of them, and waits for that, but not for ever.
  void abort() noexcept;

 private:
  void make_next();
  void add(std::shared_ptr<Communicator> made);
  std::size_t moving(std::size_t i) const { return i + (form_.blocking ? 1 : 0); }

  std::function<std::shared_ptr<Communicator>()> root_;
  const NodeLayout& nodes_;
  const Form form_;
  std::mutex mutex_;  ///< for the next two, where both threads look at them
  bool aborted_ = false;
  std::vector<std::shared_ptr<Communicator>> all_;  ///< root, whole of each slot, then inside and across of each
  std::vector<Slot> slots_;                         ///< when all are made
  std::atomic<bool> complete_{false};
};

}  // namespace hvd::nccl

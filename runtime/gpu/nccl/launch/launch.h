/// @file launch.h — puts a batch of operations on the GPU's stream: packs, calls NCCL, unpacks.
///
/// Small tensors of one dtype and reduction share one NCCL call through the fusion buffer (gpu_batch.h).  Larger
/// tensors use calls of their own.
///
/// A group holds the NCCL calls of one communicator.  The first group has the operations over all ranks at once.  The
/// operations by nodes have three more groups.  A sum is reduce-scattered inside the node.  The ranks with the same
/// part then reduce the part across nodes.  Last, the sum is gathered inside the node.  An allgather runs across nodes,
/// then inside the node.  Last, copies on the device put the blocks in order.  The next group begins when NCCL has put
/// the previous group on the stream.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "gpu/nccl/communicator/communicator_group.h"
#include "gpu/nccl/launch/gpu_batch.h"

namespace hvd::nccl {

class NcclLaunch final : public GpuBatch {
 public:
  struct Where : StreamContext {
    CommunicatorGroup& communicators;
    std::size_t slot;
    const NodeLayout& nodes;
    bool sums_by_nodes, gathers_by_nodes;
  };
  NcclLaunch(const Where& where, int size, std::vector<DeviceTensor> tensors);

  /// Queues the whole batch.  Called by the LaunchThread.
  void run() noexcept;
  /// Puts the operations into the CUDA graph that is being captured on the stream, in place of run().  Results have
  /// memory, no sum is widened, and the communicators are made.  The context must be current.  Throws Error.
  void record();
  bool under_way() const { return !done() && !failed_.load(std::memory_order_seq_cst); }
  bool midway() const override { return calling_.load() && !done(); }
  /// Throws the error of run(), if run() has failed.  Any thread.
  void check() const;
  /// Tells run() to return as soon as it can, and to queue nothing more.  Any thread.
  void cancel() { cancelled_ = true; }

 private:
  enum class Group { all, inside, across, gather };
  /// An operation by nodes.
  struct ByNodes {
    const void* in;
    void* out;
    std::size_t elements;  ///< number of elements; allgather: bytes of this rank's tensor
    std::size_t element;   ///< bytes of an element
    int type;
    RedOp first, then;       ///< operators of the two sums, inside and across
    DeviceTensor* gathered;  ///< the tensor of an allgather; nullptr: a sum
    cuda::Pointer row, box;  ///< allgather: results of the gather across nodes, and of the gather inside the node
  };
  /// A reducescatter that is computed in f32.
  struct Wider {
    DeviceTensor* tensor;
    cuda::Pointer whole, part;  ///< f32 copies of this rank's input and of its result
    std::size_t elements;       ///< elements of `part`
    Scaling scaling;
  };
  void queue();
  void queue_here();
  Scaling scaled_alone(const DeviceTensor& t) const;
  bool local(const DeviceTensor& t) const;
  void finish_here(const DeviceTensor& t);
  void go_on() const;
  template <class Ready>
  void wait_until(Ready ready) const;
  void register_tensors();
  void prepare();
  void prepare(DeviceTensor& t);
  /// Allocates the result, unless the caller's memory takes it.
  void make_result(DeviceTensor& t, std::size_t bytes);
  void widen(DeviceTensor& t, std::size_t elements);
  void call();
  void finish();
  void scale_alone();
  void call_all();
  void call(const FusedGroup& f);
  void call(DeviceTensor& t);
  void call_gather(DeviceTensor& t);
  void call_alltoall(DeviceTensor& t);
  void call_reducescatter(DeviceTensor& t);
  bool by_nodes(const DeviceTensor& t) const;
  void prepare_by_nodes();
  void call(const ByNodes& n, Group group);
  void put_in_order(const ByNodes& n);
  RedOp operation(const DeviceTensor& t, DType dtype, double inside, Communicator& c);
  CommunicatorGroup::Slot slot() const { return where_.communicators.slot(where_.slot); }
  Communicator& communicator() const;

  const Where where_;
  std::vector<ByNodes> by_nodes_;
  std::vector<Wider> wider_;
  std::vector<Group> groups_;
  std::size_t at_ = 0;       ///< index of the group that runs
  std::vector<bool> alone_;  ///< [tensors] the tensor has a call of its own
  std::atomic<bool> calling_{false}, cancelled_{false}, failed_{false};
  std::exception_ptr error_;  ///< valid when failed_
};

}  // namespace hvd::nccl

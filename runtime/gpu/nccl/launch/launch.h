/// @file launch.h — a batch of operations put on the GPU's stream: packed, handed to NCCL, unpacked.
///
/// Small tensors of one type and reduction share one NCCL call through the fusion
/// buffer (gpu_batch.h); larger ones go as they are.
///
/// A group is the work of one communicator.  The first group has the operations over all ranks at once.  Node by node
/// there are three more.  A sum is scattered inside the node, reduced across nodes by the ranks with the same part, and
/// gathered inside.  An allgather goes across nodes, then inside; a kernel then puts its blocks in order.  The next
/// group begins when NCCL has put the group before it on the stream.
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

  /// Queues all of it.  On the LaunchThread.
  void run() noexcept;
  bool under_way() const { return !done() && !failed_.load(std::memory_order_seq_cst); }
  bool midway() const override { return calling_.load() && !done(); }
  /// Throws what run() has met.  Any thread.
  void check() const;
  /// run() is to leave as soon as it can, and to queue nothing anymore.  Any thread.
  void cancel() { cancelled_ = true; }

 private:
  enum class Group { all, inside, across, gather };
  /// What has a form by nodes.
  struct ByNodes {
    const void* in;
    void* out;
    std::size_t elements;  ///< allgather: bytes of a rank
    std::size_t element;   ///< bytes of one
    int type;
    RedOp first, then;       ///< of the sums
    DeviceTensor* gathered;  ///< an allgather; nullptr: a sum
    cuda::Pointer row, box;  ///< allgather: what came from across, and from inside
  };
  /// A reducescatter that is made in f32.
  struct Wider {
    DeviceTensor* tensor;
    cuda::Pointer whole, part;  ///< what this rank has, and what it gets
    std::size_t elements;       ///< of the part
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
  void prepare();
  void prepare(DeviceTensor& t);
  /// Memory for it, unless the caller's takes it.
  void make_result(DeviceTensor& t, std::size_t bytes);
  void widen(DeviceTensor& t, std::size_t elements);
  void call();
  void finish();
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
  std::size_t at_ = 0;       ///< the group that NCCL is at
  std::vector<bool> alone_;  ///< [tensors]
  std::atomic<bool> calling_{false}, cancelled_{false}, failed_{false};
  std::exception_ptr error_;  ///< when failed_
};

}  // namespace hvd::nccl

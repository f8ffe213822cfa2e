/// @file launch.h — a batch on device memory, moved by messages of an MPI that takes such memory: packed, sent,
/// reduced by our kernels, unpacked.
///
///   stream: wait for each tensor's mark → gather │ messages │ reduce │ messages │ scatter → mark
///
/// At each bar the host has to see that what came before is done: it asks for a mark, or tests the messages, and goes
/// on with other work when they are not (step() never waits).
///
/// Messages, not MPI's collectives: Open MPI takes device memory in point-to-point calls and in blocking collectives,
/// but "neither the nonblocking collective APIs nor the one-sided" (its FAQ, "Running CUDA-aware Open MPI"), and its
/// reductions copy to the host first (coll/cuda).  A blocking call would wait for a lost peer for ever, and hold up
/// all other batches.  The rules for the memory: the data must be there before the call, since MPI knows no streams,
/// and the device's context current at the first call that needs it (same FAQ, "When do I need to select a CUDA
/// device?").
///
/// None of this has run on a device.
#pragma once
#include <memory>
#include <vector>

#include "ops/messages.h"
#include "ops/mpi/plan.h"
#include "ops/nccl/work.h"

namespace hvd::mpi {

class Launch final : public nccl::Work {
 public:
  /// @p tensors  each is possible(); place.means.kernels
  Launch(const nccl::Place& place, transport::Transport& transport, std::vector<nccl::Tensor> tensors);

  bool step() override;
  bool midway() const override { return false; }  // nothing that is queued waits for another rank
  /// Messages may be under way: then this must live for ever, and so must the fusion buffer.
  bool sending() const { return messages_.under_way() > 0; }

 private:
  enum class State { fresh, packing, first, reducing, second };
  void start();
  void post(std::size_t round);
  void reduce();
  void after_first();
  void pack_rest() override { move_all(plan_.gather, true); }
  void unpack_rest() override { move_all(plan_.scatter, false); }
  void move_all(const std::vector<Move>& moves, bool gather);
  void* memory_of(const Move& m, bool gather) const;

  transport::Transport& transport_;
  Plan plan_;
  State state_ = State::fresh;
  std::shared_ptr<cuda::Mark> behind_;  ///< of what the host waits for
  ops::Messages messages_;
};

}  // namespace hvd::mpi

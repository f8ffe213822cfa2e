/// @file launch.h — a batch of operations put on the GPU's stream: packed, handed to NCCL, unpacked.
///
/// The host waits for nothing: done() means that all is queued.  What becomes of
/// it, the mark says that is recorded behind it.  Small tensors of one type and
/// reduction share one NCCL call through the fusion buffer, packed by one launch;
/// larger ones go as they are.
///
///   stream: wait for each tensor's mark → gather → NCCL group → scatter → mark
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "ops/nccl/communicator.h"
#include "ops/nccl/tensor.h"
#include "ops/stage.h"

namespace hvd::nccl {

/// Tensors that share one NCCL call.
struct Fused {
  std::vector<std::size_t> tensors;  ///< of the launch
  std::vector<std::size_t> at;       ///< where each begins in the fusion buffer, in bytes
  std::size_t begin = 0, bytes = 0;  ///< of all, in the fusion buffer
  Scaling scaling;
  bool wide = false;
};

/// Which tensors share calls.  Pure, and the same on all ranks.  Others are called for one by one.
/// *buffer_bytes: how large the fusion buffer must be.
std::vector<Fused> fuse(const std::vector<Tensor>& tensors, int size, const Means& means, std::size_t* buffer_bytes);

/// The fusion buffer of a process set; grows as needed.
class Buffer {
 public:
  explicit Buffer(cuda::Gpu& gpu) : gpu_(gpu) {}
  ~Buffer() { gpu_.free(address_, last); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  /// With the context current.  What was there before is gone.
  cuda::Pointer of(std::size_t bytes);
  std::shared_ptr<cuda::Mark> last;  ///< behind its last use

 private:
  cuda::Gpu& gpu_;
  cuda::Pointer address_ = 0;
  std::size_t bytes_ = 0;
};

class Launch final : public ops::Stage {
 public:
  struct Where {
    cuda::Gpu& gpu;
    cuda::Stream stream;
    Communicator& communicator;
    Buffer& buffer;
    Means means;
    bool timed;  ///< marks between the parts, for the timeline
  };
  Launch(const Where& where, std::vector<Tensor> tensors);
  ~Launch() override;

  /// Memory of a launch that will not be queued.
  struct Rest {
    std::vector<cuda::Pointer> device;
    std::vector<void*> pinned;
    bool empty() const { return device.empty() && pinned.empty(); }
  };
  /// The caller gives it back, once nothing of what was queued can use it anymore.
  Rest take_rest();
  /// Something has been queued, or begun to be, but not all.
  bool midway() const { return state_ == State::calling; }

  bool step() override;
  bool done() const override { return state_ == State::queued; }
  /// Once done: the tensors, with their results; and what is recorded behind it all.
  std::vector<Tensor>& tensors() { return tensors_; }
  const std::shared_ptr<cuda::Mark>& mark() const { return marks_.back(); }
  /// timed: five, before the wait for the tensors, before the packing, before NCCL, before the unpacking, at the end.
  const std::vector<std::shared_ptr<cuda::Mark>>& marks() const { return marks_; }
  /// When the first was recorded, on the host's monotonic clock.
  std::int64_t began_ns() const { return began_ns_; }
  bool packs() const { return !fused_.empty(); }

 private:
  enum class State { joining, calling, queued };
  void enqueue();
  void finish();
  void note();
  void pack(const Fused& f);
  void move(const Fused& f, bool gather);
  void call();
  void call(const Fused& f);
  void call(Tensor& t);
  void call_gather(Tensor& t);
  void call_alltoall(Tensor& t);
  void call_reducescatter(Tensor& t);
  RedOp operation(const Tensor& t, int type, double inside);
  cuda::Pointer scratch(std::size_t bytes);
  int size() const { return where_.communicator.size(); }

  const Where where_;
  std::vector<Tensor> tensors_;
  std::vector<Fused> fused_;
  std::vector<bool> alone_;  ///< [tensors]
  cuda::Pointer buffer_ = 0;
  State state_ = State::joining;
  std::int64_t began_ns_ = 0;
  std::vector<cuda::Pointer> scratch_;  ///< until the end of the batch
  std::vector<void*> pinned_;
  std::vector<std::shared_ptr<cuda::Mark>> marks_;
};

}  // namespace hvd::nccl

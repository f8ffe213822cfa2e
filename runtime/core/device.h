/// @file device.h — a process set's operations on device memory: which go through NCCL, which
/// through host memory.
///
/// The seam between batches and the GPU.  A batch gives its device tensors here:
/// those that NCCL takes run as one stage; the rest is copied to pinned memory (staging.h), runs as host tensors do,
/// and is copied back.  An operation ends for the engine when its work is queued on our stream; what is still running
/// on the device (running.h) is watched: NCCL's asynchronous errors, and peers that are gone.
#pragma once
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/operation.h"
#include "core/running.h"
#include "core/staging.h"
#include "core/world.h"
#include "gpu/cuda/gpu.h"
#include "gpu/nccl/agreement.h"
#include "gpu/nccl/launch.h"
#include "gpu/nccl/multiprocessor_share.h"
#include "ops/movement/movement.h"
#include "ops/stage.h"
#include "recorder/tracer.h"

namespace hvd::core {

/// What a process set gets of the world's NCCL when it is made.
struct InheritedGpu {
  cuda::Gpu& gpu;
  std::unique_ptr<nccl::MultiprocessorShare> share;
  int slots;
  std::unique_ptr<nccl::Communicator> whole;  ///< of the set
};

/// Under the engine's drive lock.
class Device {
 public:
  using Exchange = std::function<std::unique_ptr<ops::Movement>(std::vector<ops::MovedTensor>)>;

  /// @p transport  of the set
  /// @p exchange  makes the stage that carries bytes between the hosts of the set
  /// @p gpu_busy  becomes true when work is left to the GPU
  Device(const World& world, const Config& config, std::atomic<bool>& gpu_busy, trace::Tracer& tracer,
         Exchange exchange, std::unique_ptr<InheritedGpu> inherited);
  ~Device();

  /// The ranks have decided; else agree() comes first, with the first batch that has device tensors.
  bool agreed() const { return agreed_; }
  void begin_agreement(std::span<Operation* const> ops);
  /// True when anything moved.
  bool step_agreement();
  const nccl::GpuDecision& decision() const { return decision_; }
  /// From now on the operation lies in pinned memory, the copy of its input on its way: staged() says when it is there.
  void stage(Operation& op) {
    if (staging_) staging_->begin(op, world_.rank);
  }
  bool staged() const { return staging_->arrived(); }
  /// A staged operation's result is there, in pinned or ordinary memory: queues the way back.
  void give_back(Operation& op) { staging_->give_back(op); }

  /// NCCL has not been used yet: it starts with the first batch.
  bool joins() const { return !communicators_; }
  /// Operations that were taken, as a stage.  row: of the timeline, which is told later what the GPU did when; 0: none
  void begin(std::span<Operation* const> ops, std::uint32_t row);
  bool step();
  bool done() const;
  /// Hands results and marks to the operations.
  void finish();

  /// Work is on the device that has not ended.
  bool running() const;
  /// A communicator of some of its ranks can be had: NCCL works, and has what it takes.  The same on all ranks.
  bool splits() const { return communicators_ && decision_.splits; }
  /// With splits(): a share of this rank's GPU for the new set.
  std::unique_ptr<nccl::MultiprocessorShare> share() { return std::make_unique<nccl::MultiprocessorShare>(*gpu_); }
  /// With splits(): nothing runs, and NCCL can be split.  Throws Error when NCCL failed.
  bool quiet();
  /// With splits(), while quiet(), on all ranks: a communicator for a new set that has @p blocks of each
  /// of its GPUs.  rank: this one's place in it; -1: none, and nullptr is returned.  Throws Error.
  std::unique_ptr<InheritedGpu> split(int rank, int size, int blocks, std::unique_ptr<nccl::MultiprocessorShare> share);
  /// True when some of it has ended.  Throws Error when NCCL failed.
  bool watch();
  /// Nothing works here afterwards.  What is queued already may need nobody anymore, so it has two seconds to end by
  /// itself before it is ended, and its callers told.
  void fail(int code, const std::string& text);

 private:
  nccl::DeviceInfo device_info();
  void join();
  std::unique_ptr<ops::Movement> exchange(const void* bytes, std::size_t count);
  void begin_lengths();
  void take_lengths();
  void launch();
  void forget_launch();
  void say() const;
  std::unique_ptr<LaunchTimes> timed();
  void end_now(int code, const std::string& text);
  void free_rest();

  const World& world_;
  const Config& config_;
  std::atomic<bool>& gpu_busy_;
  trace::Tracer& tracer_;
  const Exchange exchange_;
  /// A stream, and what is on it; see nccl::CommunicatorGroup.
  struct StreamSlot {
    StreamSlot(std::atomic<bool>& queued, trace::Tracer& tracer) : running(queued, tracer) {}
    cuda::Stream stream = nullptr;
    std::unique_ptr<nccl::FusionBuffer> buffer;
    DeviceQueue running;
  };
  /// Of the stage.
  StreamSlot& slot() { return slots_[turn_ % slots_.size()]; }
  bool reap();

  cuda::Gpu* gpu_ = nullptr;
  bool agreed_ = false;
  nccl::GpuDecision decision_;
  nccl::DeviceInfo mine_;
  std::unique_ptr<ops::Movement> delivery_;  ///< of devices, then of lengths
  std::unique_ptr<InheritedGpu> inherited_;
  std::unique_ptr<nccl::MultiprocessorShare> share_;
  std::unique_ptr<nccl::CommunicatorGroup> communicators_;
  nccl::NodeLayout nodes_;
  std::deque<StreamSlot> slots_;  ///< the first one is there from the start; copies through host memory are on it
  std::size_t turn_ = 0;          ///< batches that NCCL has taken

  std::vector<Operation*> ops_;  ///< of the stage
  std::vector<nccl::DeviceTensor> tensors_;
  std::vector<std::int64_t> my_lengths_;
  std::unique_ptr<nccl::GpuBatch> launch_;
  std::uint32_t row_ = 0;
  bool idle_ = false;                ///< our stream was, when the launch began
  std::vector<cuda::Pointer> rest_;  ///< of a launch that failed, until NCCL has been ended

  std::unique_ptr<Staging> staging_;  ///< there when a GPU is
  int failed_ = 0;                    ///< a status: what runs ends at end_by_
  std::string why_failed_;
  std::chrono::steady_clock::time_point end_by_;
};

}  // namespace hvd::core

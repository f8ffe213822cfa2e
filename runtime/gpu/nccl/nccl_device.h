/// @file nccl_device.h — a process set's tensors on GPUs: through NCCL, or through host memory.
///
/// The tensors of a batch that NCCL takes run as one launch (launch.h).  The other tensors are copied to pinned memory
/// and back (cuda/staging.h).  NcclDevice watches the running work (cuda/stream_queue.h) for NCCL's asynchronous
/// errors and for lost peers.
#pragma once
#include <chrono>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpu/cuda/gpu.h"
#include "gpu/cuda/staging.h"
#include "gpu/cuda/stream_queue.h"
#include "gpu/device.h"
#include "gpu/nccl/agreement.h"
#include "gpu/nccl/captures.h"
#include "gpu/nccl/launch/launch.h"
#include "gpu/nccl/multiprocessor_share.h"

namespace hvd::nccl {

/// The part of the world's NCCL that a new process set inherits.
struct InheritedGpu final : gpu::DeviceInheritance {
  InheritedGpu(cuda::Gpu& of, std::unique_ptr<gpu::DeviceShare> part, int count, std::unique_ptr<Communicator> all)
      : gpu(of), share(std::move(part)), slots(count), whole(std::move(all)) {}
  cuda::Gpu& gpu;
  std::unique_ptr<gpu::DeviceShare> share;
  int slots;
  std::unique_ptr<Communicator> whole;  ///< the communicator of the new set
};

/// Size: a batch moves through all of its members in order: buffers, communicators, thread, events.
class NcclDevice final : public gpu::SetDevice {
 public:
  NcclDevice(gpu::SetContext context, std::unique_ptr<InheritedGpu> inherited);
  ~NcclDevice() override;

  void begin_agreement(gpu::LocalGpu* gpu) override;
  bool step_agreement() override;
  bool agreed() const override { return agreed_; }
  const gpu::DeviceFacts& facts() const override { return facts_; }

  bool joins() const override { return !side_->communicators; }
  void submit(std::vector<DeviceTensor> tensors, std::uint32_t row) override;
  bool step() override;
  bool done() const override;
  bool wakes() const override { return launch_ && !delivery_ && launch_->under_way(); }
  Result finish() override;

  void* stage(const DeviceTensor& tensor) override { return staging_->begin(tensor, context_.world.rank); }
  bool staged() const override { return !staging_ || staging_->arrived(); }
  std::shared_ptr<gpu::DeviceCompletion> give_back(DeviceTensor& tensor, void* pinned,
                                                   std::span<const std::byte> result) override {
    return staging_->give_back(tensor, pinned, result);
  }

  std::shared_ptr<gpu::Captures> captures() override { return captures_; }

  bool running() const override;
  bool busy() override;
  bool watch() override;
  gpu::DeviceWait wait() const override;
  std::int64_t take_waited() override;
  void fail(int code, const std::string& text) override;

  bool splits() const override { return side_->communicators && decision_.splits; }
  std::unique_ptr<gpu::DeviceShare> share() override { return std::make_unique<MultiprocessorShare>(*gpu_); }
  bool quiet() override;
  std::unique_ptr<gpu::DeviceInheritance> split(int rank, int size, int blocks,
                                                std::unique_ptr<gpu::DeviceShare> share) override;

 private:
  DeviceInfo device_info();
  std::int64_t take_windows(const Library& library, int slots);
  void give_back_windows();
  void prefer_windows();
  void say_windows();
  void join();
  void begin_lengths();
  void take_lengths();
  void launch();
  void forget_launch();
  void say() const;
  std::unique_ptr<cuda::LaunchTimes> timed();
  void end_now(int code, const std::string& text);
  void free_rest();

  const gpu::SetContext context_;
  /// A stream and its state.  See CommunicatorGroup.
  struct StreamSlot {
    StreamSlot(std::atomic<bool>& queued, trace::Tracer& tracer) : running(queued, tracer) {}
    cuda::Stream stream = nullptr;
    std::unique_ptr<FusionBuffer> buffer;
    StreamWaits waits;
    cuda::StreamQueue running;
  };
  /// The objects that a launch uses.  A running launch keeps them alive, even if the device is destroyed.
  struct LaunchSide {
    NodeLayout nodes;
    std::deque<StreamSlot> slots;  ///< the first exists from the start; copies through host memory use its stream
    std::unique_ptr<CommunicatorGroup> communicators;
  };
  /// The slot of the current batch.
  StreamSlot& slot() { return side_->slots[turn_ % side_->slots.size()]; }
  bool slots_run() const;
  bool graphs_may_run() const { return captures_ && captures_->used(); }
  bool at_rest() const { return !thread_ || thread_->idle(); }
  void stop_launch();
  bool reap();

  cuda::Gpu* gpu_ = nullptr;
  bool agreed_ = false;
  GpuDecision decision_;
  gpu::DeviceFacts facts_;  ///< the part of the decision that others need
  bool hashes_ = false;     ///< HVD_AGREEMENT is on, and all ranks have the kernel for it
  DeviceInfo mine_;
  std::unique_ptr<ops::Movement> delivery_;  ///< the exchange of device facts, later of lengths
  std::unique_ptr<InheritedGpu> inherited_;
  std::unique_ptr<MultiprocessorShare> share_;
  std::shared_ptr<LaunchSide> side_ = std::make_shared<LaunchSide>();
  std::unique_ptr<LaunchThread> thread_;          ///< exists when the communicators do
  std::size_t turn_ = 0;                          ///< number of finished NCCL batches
  std::vector<RegisteredMemory::Block> windows_;  ///< [slots] of HVD_NCCL_WINDOWS; empty: none
  bool said_windows_ = false;

  std::vector<DeviceTensor> tensors_;
  std::vector<std::int64_t> my_lengths_;
  std::shared_ptr<NcclLaunch> launch_;  ///< the thread uses the launch until the thread is idle
  std::uint32_t row_ = 0;
  bool idle_ = false;  ///< the stream was idle when the launch began
  /// Memory of a failed launch, kept until NCCL has been ended.
  std::vector<cuda::Pointer> rest_;

  std::shared_ptr<NcclCaptures> captures_;  ///< from the agreement on, when the rank has a GPU
  std::unique_ptr<cuda::Staging> staging_;  ///< exists when the rank has a GPU
  int failed_ = 0;                          ///< not 0: the status of the failure; running work is ended at end_by_
  std::string why_failed_;
  std::chrono::steady_clock::time_point end_by_;
};

}  // namespace hvd::nccl

/// @file captures.h — the NCCL calls of one process set that become part of CUDA graphs.
///
/// Captured calls have a communicator of their own, with a share of the multiprocessors.  So the runtime's batches and
/// running graphs cannot block each other.  A graph may run until the set ends.  Then end() aborts the communicator,
/// and NCCL's kernels in a graph that runs later end at once, without an exchange.
///
/// Nothing is packed: a buffer would have to belong to one graph.  NCCL combines the calls of a group.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "gpu/device.h"
#include "gpu/nccl/agreement.h"
#include "gpu/nccl/launch/launch.h"
#include "gpu/nccl/multiprocessor_share.h"

namespace hvd::nccl {

/// A caller's thread captures.  The engine's thread may call used(), watch() and end() at the same time.
class NcclCaptures final : public gpu::Captures {
 public:
  NcclCaptures(cuda::Gpu& gpu, int rank, int size, const GpuDecision& decision)
      : gpu_(gpu), rank_(rank), size_(size), decision_(decision) {}
  ~NcclCaptures() override { end(); }

  std::string offer() override;
  void check(const gpu::LocalGpu& gpu, std::span<const DeviceTensor> tensors) const override;
  void join(std::vector<std::string> offers, const std::function<void()>& go_on) override;
  void record(std::vector<DeviceTensor> tensors, gpu::StreamHandle stream) override;

  /// True while a graph of the program may use the communicator.
  bool used() const { return used_.load(); }
  /// Throws Error when NCCL has failed.
  void watch();
  /// Returns the mark of the work that all streams have now, with graphs that run.  nullptr: the driver cannot tell.
  std::shared_ptr<cuda::Mark> running_graphs() const;
  /// Begins to end the communicator.  Graphs on the device end too.
  void end() noexcept;

 private:
  std::shared_ptr<CommunicatorGroup> group() const;
  DeviceTensor recordable(DeviceTensor tensor) const;

  cuda::Gpu& gpu_;
  const int rank_, size_;
  const GpuDecision decision_;
  std::unique_ptr<MultiprocessorShare> share_;
  std::atomic<bool> used_{false};
  mutable std::mutex mutex_;  ///< guards the members below
  std::shared_ptr<CommunicatorGroup> group_;
  bool ready_ = false, ended_ = false;
};

}  // namespace hvd::nccl

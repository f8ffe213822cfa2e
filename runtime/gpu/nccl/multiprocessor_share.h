/// @file multiprocessor_share.h — how much of a device NCCL's kernels may hold at a time.
///
/// A kernel of NCCL needs a multiprocessor for each of its blocks, and keeps it
/// until its peers have come; why all of a process must fit side by side, communicator_group.h
/// says.  So each process set gets a share of the multiprocessors when its ranks
/// agree on how to use NCCL: half of what is left, the world first.  The ranks take
/// the least share among them.  Where nothing is left, the set's tensors go through
/// host memory.  (On 132 multiprocessors: 66, more than NCCL uses by itself, then
/// 33, 16, 8, …)
#pragma once
#include "gpu/cuda/gpu.h"
#include "gpu/device.h"

namespace hvd::nccl {

/// A share of one device, until it is destroyed.  Any thread.
class MultiprocessorShare final : public gpu::DeviceShare {
 public:
  explicit MultiprocessorShare(cuda::Gpu& gpu) : gpu_(gpu), blocks_(gpu.reserve()) {}
  ~MultiprocessorShare() override { gpu_.unreserve(blocks_); }
  MultiprocessorShare(const MultiprocessorShare&) = delete;
  MultiprocessorShare& operator=(const MultiprocessorShare&) = delete;
  int blocks() const override { return blocks_; }
  /// To no more than @p blocks: what all ranks have.
  void shrink(int blocks) {
    if (blocks >= blocks_) return;
    gpu_.unreserve(blocks_ - blocks);
    blocks_ = blocks;
  }

 private:
  cuda::Gpu& gpu_;
  int blocks_;
};

}  // namespace hvd::nccl

/// @file multiprocessor_share.h — limits the multiprocessors of a device that NCCL's kernels may use at a time.
///
/// A kernel of NCCL needs a multiprocessor for each of its blocks, until the kernels of its peers have come.  So all
/// such kernels of a process must fit on the device at the same time (communicator_group.h).  A process set reserves
/// its share when its ranks agree on how to use NCCL.  The share is half of the free multiprocessors, rounded up.  The
/// ranks of a set use the smallest share among them.  If no multiprocessor is free, the set's tensors go through host
/// memory.  The world set is the first.  Example on 132 multiprocessors: 66 (more than NCCL uses by default), then 33,
/// 17, 8, …
#pragma once
#include "gpu/cuda/gpu.h"
#include "gpu/device.h"

namespace hvd::nccl {

/// A share of one device.  The destructor gives the share back.  Any thread.
class MultiprocessorShare final : public gpu::DeviceShare {
 public:
  explicit MultiprocessorShare(cuda::Gpu& gpu) : gpu_(gpu), blocks_(gpu.reserve()) {}
  ~MultiprocessorShare() override { gpu_.unreserve(blocks_); }
  MultiprocessorShare(const MultiprocessorShare&) = delete;
  MultiprocessorShare& operator=(const MultiprocessorShare&) = delete;
  int blocks() const override { return blocks_; }
  /// Reduces the share to @p blocks, the size that all ranks have.
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

/// @file batch_hashes.h — the hashes of one batch's results, which a kernel computes after the results.
///
/// One launch hashes the slices of up to Table::most tensors.  NCCL may have written the results to the tensors' own
/// memory, or a kernel has unpacked them.  The kernel reads the tensors, and not the fusion buffer.  So the hash covers
/// the last write, and is the same on ranks whose tensors are aligned differently.  The sums are in device memory,
/// where atomic additions are fast.  A copy then takes them to pinned host memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "gpu/cuda/gpu.h"
#include "gpu/cuda/stream_queue.h"
#include "gpu/device.h"

namespace hvd::nccl {

class BatchHashes final : public gpu::SliceHashes {
 public:
  /// Allocates memory.  To be made before NCCL's work is queued.  The context must be current.  @p set: see
  /// cuda::DeviceWork.  Without memory the batch has no hashes on this rank.
  BatchHashes(cuda::Gpu& gpu, cuda::Stream stream, const void* set, std::size_t tensors);
  /// Memory of a batch that was not queued as a whole is never used again: the copy may still come.
  ~BatchHashes() override;

  /// Queues the work.  The results of @p tensors must be complete at this point of the stream.  The context must be
  /// current.  Throws Error.
  void queue(std::span<const gpu::DeviceTensor> tensors);
  /// @p end: of the batch.
  void queued(std::shared_ptr<const cuda::StreamEnd> end) { end_ = std::move(end); }

  bool arrived() const override;
  std::uint64_t of(std::size_t tensor) const override;

 private:
  /// A hash, and padding: pieces of a Table lie at multiples of 16 bytes.
  struct Record {
    std::uint64_t hash, unused;
  };

  cuda::Gpu& gpu_;
  const cuda::Stream stream_;
  const std::size_t bytes_;   ///< of all records
  cuda::Pointer sums_ = 0;    ///< [tensors] records on the device
  Record* pinned_ = nullptr;  ///< [tensors]; nullptr: there was no memory
  std::shared_ptr<const cuda::StreamEnd> end_;
};

}  // namespace hvd::nccl

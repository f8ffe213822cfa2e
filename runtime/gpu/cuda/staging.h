/// @file staging.h — copies tensors on a GPU to pinned host memory, and results back.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <unordered_set>
#include <vector>

#include "gpu/cuda/gpu.h"
#include "gpu/cuda/stream_queue.h"

namespace hvd::cuda {

/// Uses one stream of the runtime.  The caller holds the engine's drive lock.
class Staging {
 public:
  Staging(Gpu& gpu, Stream stream, StreamQueue& running) : gpu_(gpu), stream_(stream), running_(running) {}

  /// Allocates pinned memory for @p tensor and queues the copy of its input.  @p rank: this process's rank within the
  /// set.
  void* begin(const gpu::DeviceTensor& tensor, int rank);
  /// Returns true when all copies to the host have ended.
  bool arrived() const;
  /// Returns the GPU's progress with the tensors that are being copied.
  gpu::DeviceWait wait() const { return wait_of(inputs_); }
  /// See gpu::SetDevice::give_back().
  std::shared_ptr<gpu::DeviceCompletion> give_back(gpu::DeviceTensor& tensor, void* pinned,
                                                   std::span<const std::byte> result);
  /// Gives back the pinned memory of all tensors under way, after a failure.  The memory is reused once the stream
  /// reaches this point.  keep: the memory is never reused, since a message may still arrive in it.  Throws Error.
  void drop(bool keep);

 private:
  void* allocate(std::size_t bytes);
  void free(void* pinned, std::shared_ptr<Mark> after);
  void wait_for(const gpu::DeviceTensor& tensor);

  Gpu& gpu_;
  const Stream stream_;
  StreamQueue& running_;
  std::vector<std::shared_ptr<Mark>> copies_;  ///< copies to the host that may not have ended
  std::vector<BatchInput> inputs_;             ///< of `copies_`
  std::unordered_set<void*> given_;            ///< the pinned memory of tensors under way
};

}  // namespace hvd::cuda

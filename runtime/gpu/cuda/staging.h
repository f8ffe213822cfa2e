/// @file staging.h — tensors on a GPU that travel through pinned host memory.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <unordered_set>
#include <vector>

#include "gpu/cuda/gpu.h"
#include "gpu/cuda/stream_queue.h"

namespace hvd::cuda {

/// On one stream of ours.  Under the engine's drive lock.
class Staging {
 public:
  Staging(Gpu& gpu, Stream stream, StreamQueue& running) : gpu_(gpu), stream_(stream), running_(running) {}

  /// Pinned memory for @p tensor, with its input on the way there.  @p rank: this one, within the set
  void* begin(const gpu::DeviceTensor& tensor, int rank);
  /// The copies to the host are there.
  bool arrived() const;
  /// See gpu::SetDevice::give_back().
  std::shared_ptr<gpu::DeviceCompletion> give_back(gpu::DeviceTensor& tensor, void* pinned,
                                                   std::span<const std::byte> result);
  /// What is under way has failed; its pinned memory is used again when the stream has come here.  Throws Error.
  /// keep: never, a message may still arrive there
  void drop(bool keep);

 private:
  void* allocate(std::size_t bytes);
  void free(void* pinned, std::shared_ptr<Mark> after);
  void wait_for(const gpu::DeviceTensor& tensor);

  Gpu& gpu_;
  const Stream stream_;
  StreamQueue& running_;
  std::vector<std::shared_ptr<Mark>> copies_;  ///< to the host, under way
  std::unordered_set<void*> given_;            ///< pinned memory of tensors under way
};

}  // namespace hvd::cuda

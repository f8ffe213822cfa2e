/// @file staging.h — operations on device memory that go through pinned host memory, as host tensors in between.
#pragma once
#include <memory>
#include <unordered_set>
#include <vector>

#include "core/operation.h"
#include "core/running.h"
#include "gpu/cuda/gpu.h"

namespace hvd::core {

/// On our stream.  Under the engine's drive lock.
class Staging {
 public:
  Staging(cuda::Gpu& gpu, cuda::Stream stream, DeviceQueue& running) : gpu_(gpu), stream_(stream), running_(running) {}

  /// Input to pinned memory; a result of known size gets pinned memory too.  Nothing for stand-ins, which are in host
  /// memory already.  @p rank: this one, within the set
  void begin(Operation& op, int rank);
  /// The copies to the host are there.
  bool arrived() const;
  /// Its result is there, in pinned or ordinary memory: queues the way back.
  void give_back(Operation& op);
  /// What is under way has failed; its pinned memory is used again when the stream has come here.  Throws Error.
  /// keep: never, a message may still arrive there
  void drop(bool keep);

 private:
  void free(void* pinned, std::shared_ptr<cuda::Mark> after);

  cuda::Gpu& gpu_;
  const cuda::Stream stream_;
  DeviceQueue& running_;
  std::vector<std::shared_ptr<cuda::Mark>> copies_;  ///< to the host, under way
  std::unordered_set<void*> given_;                  ///< pinned memory of operations under way
};

}  // namespace hvd::core

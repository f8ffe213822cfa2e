/// @file registered_memory.h — device memory of ncclMemAlloc, which NCCL can register.
///
/// NCCL registers memory with a communicator.  Then its kernels, NVLink SHARP and network interfaces access this memory
/// directly, without a copy through NCCL's own buffers.  Memory of cuMemAlloc and of torch's allocator does not serve.
///
/// Blocks are never freed: a communicator that still ends may use them.  A block that is given back serves the next
/// request of its size, as in an elastic job's next world.
#pragma once
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "gpu/cuda/gpu.h"
#include "gpu/nccl/communicator/library.h"

namespace hvd::nccl {

/// Any thread.
class RegisteredMemory {
 public:
  struct Block {
    void* data = nullptr;
    std::size_t bytes = 0;
  };
  static RegisteredMemory& process();

  /// Returns a block of at least @p bytes with undefined content, which the caller owns until give_back().  Throws
  /// Error{unavailable}: NCCL is older than 2.19, or has no memory.
  Block take(const Library& library, cuda::Gpu& gpu, std::size_t bytes);
  /// Only work before @p after may use the block.  nullptr: no work does.
  void give_back(const void* data, std::shared_ptr<cuda::Mark> after = nullptr);
  /// Returns true once there is a block.
  bool any() const { return any_.load(std::memory_order_acquire); }
  /// Returns the block that contains @p data, also if the block was given back.
  std::optional<Block> block_of(const void* data) const;

 private:
  struct Known {
    Block block;
    int ordinal;
    bool is_used;
    std::shared_ptr<cuda::Mark> after;  ///< not used: the end of its last use
  };
  std::atomic<bool> any_{false};
  mutable std::mutex mutex_;
  std::vector<Known> all_;
};

}  // namespace hvd::nccl

/// @file result_memory.h — memory for the results of allgather, alltoall and reducescatter.  One rank alone does not
/// know the size of such a result.
///
/// The kernel clears each page of fresh memory at its first write.  In a virtual machine such a page fault takes 1 to 4
/// us, much longer than writing the page.  So memory that a caller gives back serves a later result.  All of this
/// memory comes from malloc, so free() may free it.
#pragma once
#include <cstddef>
#include <deque>
#include <mutex>

namespace hvd::memory {

/// Thread-safe.
class ResultMemory {
 public:
  static ResultMemory& process();
  /// @param most_kept_bytes  limit of the memory that is kept for later results
  explicit ResultMemory(std::size_t most_kept_bytes) : most_kept_bytes_(most_kept_bytes) {}
  ~ResultMemory() { clear(); }
  ResultMemory(const ResultMemory&) = delete;
  ResultMemory& operator=(const ResultMemory&) = delete;

  /// Returns at least @p bytes with undefined content; nullptr: there is no memory.  The caller owns it.
  void* take(std::size_t bytes);
  /// Keeps @p data, memory of malloc, or frees it.  Never waits for the lock, so a child of fork() may call it.
  void give_back(void* data) noexcept;
  /// Frees all kept memory.
  void clear() noexcept;

 private:
  struct KeptBlock {
    void* data;
    std::size_t bytes;
  };
  const std::size_t most_kept_bytes_;
  std::mutex mutex_;
  std::deque<KeptBlock> kept_;  ///< the oldest first
  std::size_t kept_bytes_ = 0;
};

}  // namespace hvd::memory

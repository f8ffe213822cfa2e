/// @file result_memory.h — memory for results whose size only the ranks together know (allgather, alltoall,
/// reducescatter).
///
/// The kernel clears fresh memory a page at a time, when it is first written to; in a virtual machine such a stop takes
/// 1 to 4 us, many times what writing the page takes.  So a result that was given back is used for a later one.
/// All of it is malloc's: free() may take any of it.
#pragma once
#include <cstddef>
#include <deque>
#include <mutex>

namespace hvd::memory {

/// Thread-safe.
class ResultMemory {
 public:
  static ResultMemory& process();
  /// @param most_kept_bytes  of results that were given back
  explicit ResultMemory(std::size_t most_kept_bytes) : most_kept_bytes_(most_kept_bytes) {}
  ~ResultMemory() { clear(); }
  ResultMemory(const ResultMemory&) = delete;
  ResultMemory& operator=(const ResultMemory&) = delete;

  /// At least @p bytes, with undefined content.  nullptr: there is no memory.
  void* take(std::size_t bytes);
  /// @p data  of malloc; it is kept, or freed.  Never waits: it may be called in a child of fork().
  void give_back(void* data) noexcept;
  /// Frees what is kept.
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

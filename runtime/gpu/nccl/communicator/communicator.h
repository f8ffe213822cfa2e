/// @file communicator.h — one NCCL communicator of one process set.
///
/// There are two kinds.  A *root* does not block: a long call continues inside NCCL, and ready() asks for its progress.
/// So abort() works at any time, even while the root joins its peers.  While a call is in progress, NCCL allows only
/// ncclCommGetAsyncError and ncclCommAbort.  Source: "Creating a communicator with options" in NCCL's user guide.
///
/// But NCCL starts a thread for each group of a non-blocking communicator.  So if NCCL can split, communicators that
/// move data are split from a root, and block.  A blocking communicator has queued its group when the call returns.
///
/// The set's LaunchThread makes all calls except abort() and check_health().  The engine's thread calls these two, even
/// while the LaunchThread is inside a call.  NCCL 2.19 and later allow that (NVIDIA/nccl issue 992).  While the
/// LaunchThread is idle, the engine's thread may call ready() too.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "gpu/cuda/gpu.h"
#include "gpu/nccl/communicator/registered_memory.h"
#include "gpu/nccl/communicator/threads.h"

namespace hvd::nccl {

/// From this version on, another thread may abort a blocking communicator.
inline constexpr int blocking_version = 21900;

class Communicator {
 public:
  /// Begins to join as a root.  @p id: the same on all ranks, and never used before.
  /// @param blocks  the most blocks of one kernel on the device at a time; 0: NCCL decides
  /// @param blocking  joins before it returns, and blocks in every group.  abort() has no effect on a join then.
  Communicator(const Library& library, cuda::Gpu& gpu, const UniqueId& id, int rank, int size, int blocks,
               bool blocking = false);
  ~Communicator() { abort(); }  ///< does not wait
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// The properties of a communicator to split.
  struct Subset {
    int rank, size;
    int blocks;
    bool blocking = false;
  };
  /// Begins to make communicators for parts of this root, without a new meeting of the ranks.  Collective over the
  /// ranks of the root.  @p color: the part of this rank.  With no_color the rank is in no part, and the function
  /// returns nullptr.
  /// The caller makes sure that the root is ready() and that nothing of the root runs on the device.  The root is
  /// ready() again only when all parts are made.  The parts share no resources with the root, so each can end alone.
  std::unique_ptr<Communicator> split(int color, const Subset& part);

  /// Returns true when the host's side of the last request is done, so that the communicator can be used.  Throws Error
  /// when NCCL has failed, also for later errors on the device.
  bool ready();
  /// Throws Error when NCCL has failed.
  void check_health() const;
  /// Returns NCCL's operator that multiplies each element by @p factor and then sums.  Only while ready().
  RedOp premultiplied(DType dtype, double factor);
  /// Destroys old operators of premultiplied(), and keeps the most recent ones.  The caller calls this function between
  /// two batches.
  void forget_factors();
  /// Begins to make @p memory a symmetric window, in which NCCL's kernels of all ranks read and write.  Collective: all
  /// ranks give the same number of bytes, and use the same offsets in later calls.  Only while ready(), and the next
  /// call must wait until ready() again.
  void make_window(const RegisteredMemory::Block& memory);
  /// Call it after make_window() and ready().  True if NCCL has made the window.  NCCL makes none if the GPUs cannot
  /// access each other.
  bool has_window() const { return window_ != nullptr; }
  /// Registers @p memory for later calls, once.  Not collective.  Only while ready().
  void register_once(const RegisteredMemory::Block& memory);
  /// Begins to end all work of the communicator, including its kernels on the device.  ended() waits for the end.  Not
  /// collective.
  void abort() noexcept;
  /// Waits at most until @p until.  Returns false if the abort is still running.
  bool ended(std::chrono::steady_clock::time_point until) const { return !ending_ || ending_->wait_until(until); }

  /// Makes one group of the calls in @p calls.  Only while ready().  The next group must wait until ready() again.
  void group(const std::function<void()>& calls);
  void check(int code, const char* what) const { library_.check(code, what, comm()); }
  Comm comm() const { return comm_.load(std::memory_order_acquire); }
  cuda::Gpu& gpu() const { return gpu_; }
  const Library& library() const { return library_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

 private:
  struct Factor {
    int type;
    double factor;
    RedOp op;
    std::uint64_t used;  ///< the last batch that used the operator
  };
  Communicator(const Library& library, cuda::Gpu& gpu, const Subset& part, std::shared_ptr<CommunicatorSplit> from)
      : library_(library), gpu_(gpu), rank_(part.rank), size_(part.size), from_(std::move(from)) {}
  bool made();
  int look(Comm comm) const;
  void settle() noexcept;

  const Library& library_;
  cuda::Gpu& gpu_;
  const int rank_, size_;
  Comm joined_ = nullptr;  ///< NCCL may write here until the root is ready
  std::atomic<Comm> comm_{nullptr};
  std::unique_ptr<CommunicatorAbort> ending_;
  std::shared_ptr<CommunicatorSplit> from_;  ///< the split that makes this communicator
  std::shared_ptr<CommunicatorSplit> part_;  ///< the split that makes a part of this communicator
  std::vector<Factor> factors_;
  std::uint64_t batch_ = 0;
  void* window_ = nullptr;               ///< NCCL writes it before the communicator is ready
  std::vector<const void*> registered_;  ///< by register_once()
};

}  // namespace hvd::nccl

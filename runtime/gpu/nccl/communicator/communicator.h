/// @file communicator.h — one NCCL communicator of one process set.
///
/// Two kinds.  A *root* does not block: a call that takes longer goes on inside NCCL, and ready() asks how far it is;
/// so abort() works at every moment, while it joins its peers too.  What it allows while it is in progress:
/// ncclCommGetAsyncError and ncclCommAbort, nothing else ("Creating a communicator with options" in NCCL's user guide).
/// But NCCL starts a thread for each of its groups.  So where NCCL can split, what moves data is split from a root, and
/// blocks: its groups are queued when the call returns.
///
/// All calls are made on the set's LaunchThread, but abort() and check_health(): those on the engine's, also while the
/// other is inside a call.  NCCL 2.19 and later allow that (NVIDIA/nccl issue 992).
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "gpu/cuda/gpu.h"
#include "gpu/nccl/communicator/threads.h"

namespace hvd::nccl {

inline constexpr int blocking_version = 21900;  ///< from here on another thread may abort what blocks

class Communicator {
 public:
  /// Begins to join, as a root; the id is the same on all ranks and was used for nothing else.
  /// @param blocks  the most that one of its kernels puts on the device at a time; 0: as NCCL likes
  Communicator(const Library& library, cuda::Gpu& gpu, const UniqueId& id, int rank, int size, int blocks);
  ~Communicator() { abort(); }  ///< does not wait
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// What the new one is like.
  struct Subset {
    int rank, size;
    int blocks;
    bool blocking = false;
  };
  /// Begins to make communicators of parts of this root, without a new meeting of its ranks.  Collective over them;
  /// each says what part it is in (color, or no_color: none, then nullptr is returned), and in what place.  This one
  /// must be ready() and nothing of it may run on the device, and it is not ready() again before all of them are made.
  /// Resources are not shared: the end of one is not the end of the others.
  std::unique_ptr<Communicator> split(int color, const Subset& part);

  /// What was asked for last is done on the host's side: the communicator can be used.  Throws Error when NCCL failed,
  /// also for what goes wrong on the device later.
  bool ready();
  /// Throws Error when NCCL has failed.
  void check_health() const;
  /// NCCL's operator that multiplies each element by @p factor and then sums.  Only while ready().
  RedOp premultiplied(DType dtype, double factor);
  /// Between two batches: of the sums that premultiplied() has made, the last few stay.
  void forget_factors();
  /// Begins to end everything under way here, kernels on the device too; ended() waits for that.  Local.
  void abort() noexcept;
  /// False: it is still at it.
  bool ended(std::chrono::steady_clock::time_point until) const { return !ending_ || ending_->wait_until(until); }

  /// One group of calls, made by @p calls.  Only while ready(); the next group when it is ready() again.
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
    std::uint64_t used;  ///< the batch
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
  std::shared_ptr<CommunicatorSplit> from_;  ///< this one is being made
  std::shared_ptr<CommunicatorSplit> part_;  ///< of this one another is being made
  std::vector<Factor> factors_;
  std::uint64_t batch_ = 0;
};

}  // namespace hvd::nccl

/// @file communicator.h — one NCCL communicator of one process set, never blocking.
///
/// NCCL is told not to block: a call that takes longer goes on inside NCCL, and
/// ready() asks how far it is.  So a lost peer never holds up the engine's thread,
/// and abort() works at every moment.  What such a communicator allows while it is in
/// progress: ncclCommGetAsyncError and ncclCommAbort, nothing else ("Creating a
/// communicator with options" in NCCL's user guide).  Used under the engine's drive lock, with
/// the GPU's context current (abort() sees to that itself).
#pragma once
#include <map>
#include <memory>
#include <utility>

#include "gpu/cuda/gpu.h"
#include "gpu/nccl/threads.h"

namespace hvd::nccl {

class Communicator {
 public:
  /// Begins to join; the id is the same on all ranks and was used for nothing else.
  /// @param blocks  the most that one of its kernels puts on the device at a time; 0: as NCCL likes
  Communicator(const Library& library, cuda::Gpu& gpu, const UniqueId& id, int rank, int size, int blocks);
  ~Communicator() { abort(); }  ///< does not wait
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// Begins to make communicators of parts of this one, without a new meeting of its ranks.  Collective over them; each
  /// says what part it is in (color, or no_color: none, then nullptr is returned), and in what place.  This one must be
  /// ready() and nothing of it may run on the device, and it is not ready() again before all of them are made.
  /// Resources are not shared: the end of one is not the end of the others.
  std::unique_ptr<Communicator> split(int color, int rank, int size, int blocks);

  /// What was asked for last is done on the host's side: the communicator can be used.  Throws Error when NCCL failed,
  /// also for what goes wrong on the device later.
  bool ready();
  /// A sum of what is multiplied by @p factor first.  Made once for each type and factor.  Only while ready().
  RedOp premultiplied(DType dtype, double factor);
  /// Begins to end everything under way here, kernels on the device too; ended() waits for that.  Local.
  void abort() noexcept;
  /// False: it is still at it.
  bool ended(std::chrono::steady_clock::time_point until) const { return !ending_ || ending_->wait_until(until); }

  /// One group of calls, made by @p calls.  Only while ready(); the next group when it is ready() again.
  void group(const std::function<void()>& calls);
  void check(int code, const char* what) const { library_.check(code, what, comm_); }
  Comm comm() const { return comm_; }
  cuda::Gpu& gpu() const { return gpu_; }
  const Library& library() const { return library_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

 private:
  Communicator(const Library& library, cuda::Gpu& gpu, int rank, int size, std::shared_ptr<CommunicatorSplit> from)
      : library_(library), gpu_(gpu), rank_(rank), size_(size), caller_(caller_for(library)), from_(std::move(from)) {}
  static std::shared_ptr<CallThread> caller_for(const Library& library);
  void call(const std::function<void()>& call);
  bool made();
  void settle() noexcept;

  const Library& library_;
  cuda::Gpu& gpu_;
  const int rank_, size_;
  Comm comm_ = nullptr;
  std::shared_ptr<CallThread> caller_;  ///< nullptr: the engine's thread will do
  std::unique_ptr<CommunicatorAbort> ending_;
  std::shared_ptr<CommunicatorSplit> from_;  ///< this one is being made
  std::shared_ptr<CommunicatorSplit> part_;  ///< of this one another is being made
  std::map<std::pair<int, double>, RedOp> factors_;
};

}  // namespace hvd::nccl

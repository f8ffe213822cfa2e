/// @file threads.h — the threads for NCCL's calls, beside the engine's thread.
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

#include "gpu/cuda/gpu.h"
#include "gpu/nccl/communicator/library.h"

namespace hvd::nccl {

/// Runs pieces of work one after the other, on a separate thread.  A GPU's context stays current on this thread.
///
/// NCCL's calls wait for peers.  The engine gives work to the thread and does not wait for the work.  The engine may
/// abandon the thread.  The thread then ends after its call, unless the call never returns.  Before NCCL 2.27, the
/// state of a group in progress belongs to the calling thread (ncclGroupJobMain in NCCL's group.cc).  So one thread
/// makes all calls of a process set.
class LaunchThread {
 public:
  /// @p wake: called after each piece of work, unless this object has been destroyed by then.
  LaunchThread(cuda::Gpu& gpu, std::function<void()> wake);
  /// Does not wait.  A thread that is at work ends after its work.
  ~LaunchThread();
  LaunchThread(const LaunchThread&) = delete;
  LaunchThread& operator=(const LaunchThread&) = delete;

  /// Starts @p work.  The previous work must be done, but need not have returned.  @p work must not throw, and must own
  /// all objects that it uses.
  void run(std::function<void()> work);
  /// Returns true when all given work is done.  The caller can then read the results of the work.
  bool idle() const;
  /// Waits until idle(), at most until @p limit.  Returns false if the limit has passed.
  bool idle_by(std::chrono::steady_clock::time_point limit) const;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::function<void()> work;  ///< given, but not started
    bool busy = false;           ///< work is given or running
    bool over = false;
    std::mutex wakes;  ///< held while `wake` runs
    std::function<void()> wake;
  };
  static void serve(State& state, cuda::Gpu& gpu);

  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// A split in progress.  NCCL writes the new communicator into `made` on an NCCL thread, before the parent is
/// ready again.  The parent and the new Communicator share this object, since either may end first.
struct CommunicatorSplit {
  Comm made = nullptr;
  std::mutex mutex;       ///< protects the members below
  Comm parent = nullptr;  ///< nullptr: the parent is being ended
  bool over = false;      ///< `made` is written, and no thread queries the parent any longer
  bool wanted = false;    ///< the new Communicator takes `made`; else the parent ends it

  /// Marks the split as over.  Returns `made` if the new Communicator does not take it, else nullptr.
  Comm end();
};

/// Runs ncclCommAbort on a separate thread.
///
/// ncclCommAbort sets the flag at which the communicator's kernels end, and then frees device memory.  Freeing waits
/// for *all* work on the device, so for kernels of other communicators too.  Those kernels end only when their own
/// communicators are aborted (NVIDIA/nccl issue 1013, pytorch issue 119797).  So the runtime begins all aborts before
/// it waits for any, and each wait has a limit.
///
/// The abort of a communicator with calls in CUDA graphs returns only when the program has destroyed these graphs.
///
/// exit() of this process waits at most 20 s for running aborts, and 2 s after expect_graphs().  If an abort still runs
/// then, the process ends without further exit handlers.  Otherwise exit() would tear down NCCL's copy of the CUDA
/// runtime during an abort.  On an H100, this ended a good job with SIGSEGV.
class CommunicatorAbort {
 public:
  /// Begins the abort.  @p splitting: the split of @p comm that is in progress, or nullptr.
  CommunicatorAbort(const Library& library, Comm comm, std::shared_ptr<CommunicatorSplit> splitting);
  /// Waits for the end of the abort.  Returns false if the abort still runs at @p when.
  bool wait_until(std::chrono::steady_clock::time_point when) const;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool over = false;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// Tells that CUDA graphs contain NCCL's calls from now on.
void expect_graphs();

}  // namespace hvd::nccl

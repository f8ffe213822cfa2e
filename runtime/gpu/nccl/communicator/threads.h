/// @file threads.h — the threads that NCCL's calls need beside the engine's.
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

#include "gpu/cuda/gpu.h"
#include "gpu/nccl/communicator/library.h"

namespace hvd::nccl {

/// Runs what it is given on a thread of its own, one piece after the other.  A GPU's context is current there for good.
///
/// NCCL's calls wait for peers.  The engine gives the thread work and does not wait for it.  The engine may abandon the
/// thread, which then ends when its call returns, if ever.  Before 2.27 NCCL keeps a group that is under way in
/// variables of the thread that called (ncclGroupJobMain in NCCL's group.cc), so all calls of a process set come from
/// its one thread.
class LaunchThread {
 public:
  /// @p wake is called behind each piece of work, unless this has been destroyed by then.
  LaunchThread(cuda::Gpu& gpu, std::function<void()> wake);
  /// Leaves it behind where it is at work.
  ~LaunchThread();
  LaunchThread(const LaunchThread&) = delete;
  LaunchThread& operator=(const LaunchThread&) = delete;

  /// Only when what was given before is done, but for its end.  @p work throws nothing, and owns all that it uses.
  void run(std::function<void()> work);
  /// What it was given is done.  What that has written can be read.
  bool idle() const;
  /// Waits until idle(), at most until @p limit.  False: the limit has passed.
  bool idle_by(std::chrono::steady_clock::time_point limit) const;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::function<void()> work;  ///< to be begun
    bool busy = false;           ///< with that, or what was begun
    bool over = false;
    std::mutex wakes;  ///< held during wake
    std::function<void()> wake;
  };
  static void serve(State& state, cuda::Gpu& gpu);

  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// A split under way: NCCL writes what it made into here, from a thread of its own, before the parent is ready again.
/// Shared by the parent and the part's object, since either may end first.
struct CommunicatorSplit {
  Comm made = nullptr;
  std::mutex mutex;       ///< for the rest
  Comm parent = nullptr;  ///< nullptr: it is being ended
  bool over = false;      ///< `made` is written, and nobody asks for the parent anymore
  bool wanted = false;    ///< by the part's object; else the parent ends it

  /// It is over.  What was made, if nobody wants it.
  Comm end();
};

/// ncclCommAbort on a thread of its own.
///
/// It sets the flag at which the communicator's kernels end, and then frees memory of the device.  That waits for *all*
/// that runs there, so for kernels of other communicators too, and these end only when theirs are aborted (NVIDIA/nccl
/// issue 1013, pytorch issue 119797).  So all are begun before any is waited for, and nobody waits without a limit.
///
/// exit() of this process waits for aborts that still run, at most 20 s, and then ends without further handlers: else
/// NCCL's copy of the CUDA runtime would be torn down below them (seen on an H100: SIGSEGV at the end of a good job).
class CommunicatorAbort {
 public:
  /// Begins.  @p splitting: of @p comm, under way, or nullptr.
  CommunicatorAbort(const Library& library, Comm comm, std::shared_ptr<CommunicatorSplit> splitting);
  /// False: it is still at it.
  bool wait_until(std::chrono::steady_clock::time_point when) const;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool over = false;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace hvd::nccl

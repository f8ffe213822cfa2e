/// @file threads.h — the threads that NCCL's calls need beside the engine's.
#pragma once
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "gpu/nccl/library.h"

namespace hvd::nccl {

/// Makes calls on a thread of its own, one at a time, and waits for each.
///
/// Before 2.27 NCCL keeps what it does in the background for a group (a start, a split, new connections) in variables
/// of the thread that called: a second group there, for another communicator, mixes the two up, and both are lost when
/// the thread ends (ncclGroupJobMain in NCCL's group.cc).  So there each communicator has a thread for its groups.
class CallThread {
 public:
  CallThread();
  ~CallThread();
  CallThread(const CallThread&) = delete;
  CallThread& operator=(const CallThread&) = delete;
  /// Throws what @p call throws.
  void run(const std::function<void()>& call);

 private:
  void serve();

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* call_ = nullptr;
  std::exception_ptr thrown_;
  bool over_ = false;
  std::thread thread_;
};
inline constexpr int groups_of_their_own = 22700;  ///< from here on no CallThread is needed

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
class CommunicatorAbort {
 public:
  /// Begins.  @p splitting: of @p comm, under way, or nullptr; @p caller: which began its groups, or nullptr.
  CommunicatorAbort(const Library& library, Comm comm, std::shared_ptr<CommunicatorSplit> splitting,
                    std::shared_ptr<CallThread> caller);
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

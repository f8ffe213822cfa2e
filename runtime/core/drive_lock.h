/// @file drive_lock.h — a thread's turn to drive: the lock, and where MPI moves device memory the GPU's context.
///
/// Once MPI works on device memory, it goes on with that in whichever call of it comes next, for whatever message: it
/// queues copies and asks for events, and needs the context that was current when it began with it; with another one,
/// or none, they are invalid (open-mpi/ompi#13836, #627).
#pragma once
#include <atomic>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "cuda/gpu.h"

namespace hvd::core {

/// What whoever drives has current.  Under the drive lock.
class HeldContext {
 public:
  /// From now on, this turn included, that of @p gpu; the first one counts, for good.  Never while a cuda::Current
  /// lives on this thread, since that would end before this.
  void hold(cuda::Gpu& gpu) {
    if (gpu_) return;
    gpu_ = &gpu;
    enter();
  }
  /// nullptr: none.
  const cuda::Gpu* gpu() const { return gpu_; }

 private:
  friend class DriveLock;
  void enter() {
    if (!gpu_) return;
    try {
      current_.emplace(gpu_->driver(), gpu_->context());
    } catch (const Error&) {  // the driver is gone, and nothing of MPI's works there anymore
    }
  }
  void leave() { current_.reset(); }

  cuda::Gpu* gpu_ = nullptr;
  std::optional<cuda::Current> current_;
};

/// What the GPUs of all sets have to do with who drives.
struct GpuActivity {
  std::atomic<bool> busy{false};  ///< one is at work for operations that have ended on the host
  HeldContext context;
};

class DriveLock {
 public:
  DriveLock(std::mutex& drive, GpuActivity& gpus) : lock_(drive), context_(gpus.context) { context_.enter(); }
  DriveLock(std::mutex& drive, GpuActivity& gpus, std::try_to_lock_t)
      : lock_(drive, std::try_to_lock), context_(gpus.context) {
    if (lock_) context_.enter();
  }
  ~DriveLock() { unlock(); }
  DriveLock(const DriveLock&) = delete;
  DriveLock& operator=(const DriveLock&) = delete;
  /// False: it is another thread's.
  explicit operator bool() const { return lock_.owns_lock(); }
  void unlock() {
    if (!lock_) return;
    context_.leave();
    lock_.unlock();
  }

 private:
  std::unique_lock<std::mutex> lock_;
  HeldContext& context_;
};

}  // namespace hvd::core

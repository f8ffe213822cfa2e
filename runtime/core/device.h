/// @file device.h — a process set's operations on device memory: which go through NCCL, which through host memory.
///
/// The seam between batches and the GPU.  A batch gives its device tensors here:
/// those that NCCL takes run as one stage; the others are copied to pinned memory,
/// run as host tensors do, and are copied back.  An operation ends for the engine
/// when its work is queued on our stream; what is still running on the device is
/// kept in running_ until its mark is reached, and watched: NCCL's asynchronous
/// errors, and peers that are gone.
#pragma once
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/operation.h"
#include "core/world.h"
#include "cuda/gpu.h"
#include "ops/hierarchical/delivery.h"
#include "ops/nccl/agreement.h"
#include "ops/nccl/launch.h"
#include "ops/stage.h"
#include "trace/trace.h"

namespace hvd::core {

/// Has the result of an operation on device memory arrived?  Shared by the operations of a batch and their callers.
struct DeviceEnd {
  std::shared_ptr<cuda::Mark> mark;
  std::atomic<int> status{0};  ///< not 0: it never will; then error is set
  std::string error;
};

/// What is put on @p stream from now on comes after the operation, which has ended well; the host waits for nothing.
/// Throws Error when the device's side of it has failed since.  Nothing to do for host memory.  Any thread.
void hand_over(const Operation& op, cuda::Stream stream);
/// Whether the result of an operation that has ended well is there, or never will be.  Any thread.
bool arrived(const Operation& op);

/// Under the engine's drive lock.
class Device {
 public:
  using Exchange = std::function<std::unique_ptr<ops::Delivery>(std::vector<ops::Parcel>)>;

  /// @p exchange  makes the stage that carries bytes between the hosts of the set
  /// @p queued    becomes true when work is left to the GPU
  Device(const World& world, const Config& config, std::atomic<bool>& queued, Exchange exchange);
  ~Device();

  /// The ranks have decided; else agree() comes first, with the first batch that has device tensors.
  bool agreed() const { return agreed_; }
  void begin_agreement(std::span<Operation* const> ops);
  /// True when anything moved.
  bool step_agreement();
  /// Those of @p ops that NCCL takes.  The others now lie in pinned memory, copies on their way: staged() says when.
  std::vector<Operation*> take(std::span<Operation* const> ops);
  bool staged() const;
  /// A staged operation's result is there, in pinned or ordinary memory: queues the way back.
  void give_back(Operation& op);

  /// The operations that NCCL takes, as a stage.
  void begin(std::span<Operation* const> ops, bool timed);
  bool step();
  bool done() const;
  /// Hands results and marks to the operations.
  void finish();

  /// Work is on the device that has not ended.
  bool running() const { return !running_.empty(); }
  /// True when some of it has ended.  Throws Error when NCCL failed.
  bool watch();
  /// Nothing works here afterwards.  What is queued already may need nobody anymore, so it has two seconds to end by
  /// itself before it is ended, and its callers told.
  void fail(int code, const std::string& text);

 private:
  nccl::Card card() const;
  void join();
  std::unique_ptr<ops::Delivery> exchange(const void* bytes, std::size_t count);
  void begin_lengths();
  void take_lengths();
  void launch();
  void stage(Operation& op);
  bool reap();
  void end_now(int code, const std::string& text);
  std::shared_ptr<DeviceEnd> ended(std::shared_ptr<cuda::Mark> mark);

  const World& world_;
  const Config& config_;
  std::atomic<bool>& queued_;
  const Exchange exchange_;
  cuda::Gpu* gpu_ = nullptr;
  cuda::Stream stream_ = nullptr;
  bool agreed_ = false;
  nccl::Decision decision_;
  nccl::Card mine_;
  std::unique_ptr<ops::Delivery> delivery_;  ///< of cards, then of lengths
  std::unique_ptr<nccl::Communicator> communicator_;
  std::unique_ptr<nccl::Buffer> buffer_;

  std::vector<Operation*> ops_;  ///< of the stage
  std::vector<nccl::Tensor> tensors_;
  std::vector<std::int64_t> my_lengths_;
  std::unique_ptr<nccl::Launch> launch_;
  bool timed_ = false;

  std::vector<std::shared_ptr<cuda::Mark>> staging_;  ///< copies to the host under way
  std::deque<std::shared_ptr<DeviceEnd>> running_;
  int failed_ = 0;  ///< a status: what runs ends at end_by_
  std::string why_failed_;
  std::chrono::steady_clock::time_point end_by_;
};

}  // namespace hvd::core

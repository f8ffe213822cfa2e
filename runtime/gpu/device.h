/// @file device.h — the interface between the runtime and GPUs.  runtime/core knows nothing else about GPUs.
///
/// A process has a Platform.  The Platform has a LocalGpu for each GPU that the process sees.  A request names a
/// LocalGpu.  A process set opens a SetDevice with its first tensor on a GPU.
///
/// The ranks of the set first agree how tensors on GPUs travel: among the GPUs, or through host memory.  Then:
///   - submit() takes the tensors of a batch that travel among the GPUs.  The caller calls step() until done().
///   - stage() and give_back() copy the other tensors to pinned host memory and back.
///   - watch() polls the work that is still running, and fail() ends it.
/// An operation ends for the engine when its work is queued on a stream.  A DeviceCompletion tells when the GPU has
/// finished this work, or that the work failed.
///
/// runtime/gpu/nccl implements the interface with the CUDA driver and NCCL.  A test may have its own implementation.
/// Only ~SetDevice() waits for queued work of a device.  If device memory is full, give_back() may wait for the device
/// too.  fail() and split() may wait for NCCL calls, at most two seconds.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/world.h"
#include "gpu/device_tensor.h"
#include "gpu/local_gpu.h"
#include "ops/movement/movement.h"
#include "options/configuration.h"
#include "recorder/trace/tracer.h"

namespace hvd::gpu {

/// The decisions that the ranks of a set have agreed on.
struct DeviceFacts {
  bool among_gpus = false;         ///< tensors can travel among the GPUs, without host memory
  std::uint32_t through_host = 0;  ///< bits (bit_of) of the kinds that the user sends through host memory
  Capabilities capabilities;
};

/// The GPU's progress with the oldest batch that has not ended.
struct DeviceWait {
  enum class State {
    none,        ///< no batch, or one of which nothing is known
    computing,   ///< the GPU still computes a tensor of the batch
    exchanging,  ///< all tensors are computed: the exchange has begun, or waits for other ranks
  };
  State state = State::none;
  std::string tensor;  ///< the batch's first tensor, which is the same on all ranks
  std::string late;    ///< computing: the first tensor that the GPU has not computed
};

/// The part of this rank's GPU that is reserved for one process set.  The destructor gives the part back.
class DeviceShare {
 public:
  virtual ~DeviceShare() = default;
  /// The size of the share, in units that ranks can compare.  All ranks of the set use the smallest size among them.
  virtual int blocks() const = 0;
};

/// The part of the world's device that a new set inherits.
class DeviceInheritance {
 public:
  virtual ~DeviceInheritance() = default;
};

/// The operations of one process set that become part of CUDA graphs.  Any thread, one at a time.
class Captures {
 public:
  virtual ~Captures() = default;
  /// Returns this rank's facts for join().  Throws Error{usage} if the set's operations cannot be recorded here.
  virtual std::string offer() = 0;
  /// Throws Error{usage} if this rank cannot record operations on @p tensors, which are in the memory of @p gpu.
  virtual void check(const LocalGpu& gpu, std::span<const DeviceTensor> tensors) const = 0;
  /// Collective, once: makes the connections for recorded operations.  @p offers: [ranks of the set].  Calls @p go_on
  /// while it waits for other ranks, which throws if the ranks are lost.  Does nothing if a rank has made no offer.
  virtual void join(std::vector<std::string> offers, const std::function<void()>& go_on) = 0;
  /// Puts the operations on @p stream, which is being captured.  @p tensors: in the same order on all ranks.
  virtual void record(std::vector<DeviceTensor> tensors, StreamHandle stream) = 0;
};

/// The hashes by which ranks compare the results of a batch.  The GPU computes them after the results.  The caller
/// holds the engine's drive lock.
class SliceHashes {
 public:
  virtual ~SliceHashes() = default;
  /// True when the hashes are in host memory, or the device has failed.
  virtual bool arrived() const = 0;
  /// Requires arrived().  The hash of the slice of tensor number @p tensor of the batch.  Equal bytes give equal hashes
  /// on all ranks.  0: none, since the slice is empty, the tensor is absent, or the device has failed.
  virtual std::uint64_t of(std::size_t tensor) const = 0;
};

/// The GPU side of one process set.  The caller holds the engine's drive lock.
class SetDevice {
 public:
  struct Result {
    std::vector<DeviceTensor> tensors;  ///< the submitted tensors, with the received rows and the results filled in
    std::shared_ptr<DeviceCompletion> end;
    std::shared_ptr<const SliceHashes> hashes;  ///< nullptr, on all ranks: this device hashes nothing
  };
  /// Queued work has two seconds to end by itself, since other ranks may need this work.  Then the destructor ends the
  /// work.
  virtual ~SetDevice() = default;

  /// Collective over the set: every rank calls this function once, before the first batch of the set.  gpu: the GPU of
  /// this rank's first tensor; nullptr: the rank has no tensor on a GPU.
  virtual void begin_agreement(LocalGpu* gpu) = 0;
  /// Returns true when the agreement made progress.
  virtual bool step_agreement() = 0;
  virtual bool agreed() const = 0;
  virtual const DeviceFacts& facts() const = 0;

  /// @name Tensors that travel among the GPUs, one batch after the other
  /// @{
  /// True until the first submit(), which makes the connections.
  virtual bool joins() const = 0;
  /// Starts a batch.  @p tensors: in the same order on all ranks.  row: the timeline row that later gets the GPU's
  /// times; 0: no timeline.  Throws Error.
  virtual void submit(std::vector<DeviceTensor> tensors, std::uint32_t row) = 0;
  virtual bool step() = 0;
  /// True when all work of the batch is queued.
  virtual bool done() const = 0;
  /// True while a thread of the device runs the batch.  step() has nothing to do until the thread calls
  /// SetContext::wake.
  virtual bool wakes() const { return false; }
  virtual Result finish() = 0;
  /// @}

  /// @name Tensors that travel through host memory
  /// @{
  /// Starts to copy the tensor's input to pinned memory.  Returns the pinned memory, which stays the device's.
  /// staged(): all copies have ended.
  virtual void* stage(const DeviceTensor& tensor) = 0;
  virtual bool staged() const = 0;
  /// Queues the copy back to the GPU.  @p pinned: the memory from stage(), which the device takes back.  tensor.out
  /// gets the content of @p pinned.  For an allgather, alltoall or reducescatter, tensor.destination() gets @p result
  /// instead. result.data() may be nullptr: there is no result.  The caller may free the memory of @p result
  /// afterwards.
  virtual std::shared_ptr<DeviceCompletion> give_back(DeviceTensor& tensor, void* pinned,
                                                      std::span<const std::byte> result) = 0;
  /// @}

  /// Requires agreed().  nullptr: nothing can be recorded.  The device may end before the object does.
  virtual std::shared_ptr<Captures> captures() { return nullptr; }

  /// True while some queued work of the device has not ended.  Does not query the device.
  virtual bool running() const = 0;
  /// Like running(), after a query of the device.  The caller may ask often: the device is queried at most every 20 µs.
  virtual bool busy() { return running(); }
  /// Checks the queued work.  Returns true when some of the work has ended.  Throws Error when the device, or another
  /// rank's part of the work, has failed.
  virtual bool watch() = 0;
  /// Queries the device.  For a set in which no work has ended for long.  Throws Error when the device has failed.
  virtual DeviceWait wait() const { return {}; }
  /// The time in ns, not taken before, for which callers' streams waited on the GPU for results.  Ranks reach the end
  /// of a batch together, so the rank that comes last waits least.
  virtual std::int64_t take_waited() { return 0; }
  /// Ends the use of the device.  Work that is fully queued has two seconds to end by itself.
  virtual void fail(int code, const std::string& text) = 0;

  /// @name Process sets that inherit
  /// @{
  /// True if a device for a subset of the ranks can be split from this one.  All ranks of the set return the same
  /// value.
  virtual bool splits() const = 0;
  /// Requires splits().  Returns a share of this rank's GPU for the new set.
  virtual std::unique_ptr<DeviceShare> share() = 0;
  /// Requires splits().  Returns true when nothing runs on the device, so that split() may be called.  Throws Error.
  virtual bool quiet() = 0;
  /// Collective: every rank calls this function while quiet().  rank: the rank of this process in the new set; -1: not
  /// a member, the function returns nullptr.  blocks: the smallest DeviceShare::blocks() among the members.  Throws
  /// Error.
  virtual std::unique_ptr<DeviceInheritance> split(int rank, int size, int blocks,
                                                   std::unique_ptr<DeviceShare> share) = 0;
  /// @}
};

/// The objects and functions that a SetDevice gets from its process set.  All referenced objects outlive the device.
struct SetContext {
  /// Makes a stage that sends every rank's bytes to every rank of the set: an allgather of one row.
  using Exchange = std::function<std::unique_ptr<ops::Movement>(const void* bytes, std::size_t count)>;
  const World& world;
  const options::Configuration& config;
  std::atomic<bool>& busy;  ///< the device sets this flag when it leaves work to the GPU
  trace::Tracer& tracer;
  std::uint64_t host;  ///< ranks that see the same GPUs have the same number
  Exchange exchange;
  /// Wakes the engine's thread, if that thread sleeps.  Any thread may call wake().
  std::function<void()> wake = {};
};

/// The GPUs of this process.
class Platform {
 public:
  /// Throws Error: usage if no GPU has this number, unavailable where there are no GPUs.
  virtual LocalGpu& at(int ordinal) = 0;
  /// inherited: the result of split() for this set, or nullptr.
  virtual std::unique_ptr<SetDevice> open(SetContext context, std::unique_ptr<DeviceInheritance> inherited) = 0;
  /// Frees a result, on any GPU of the process.  Returns false if @p result is not device memory of the runtime.
  virtual bool free_result(void* result) = 0;
  /// Returns device memory that NCCL can register, for give_back_registered().  Throws Error.
  virtual void* take_registered(int ordinal, std::size_t bytes) = 0;
  /// Work that @p stream has now may still use the memory.
  virtual void give_back_registered(void* data, int ordinal, StreamHandle stream) = 0;
  /// what: "cuda", "nccl" or "kernels".  Returns the version; 0: not available.
  virtual int version(std::string_view what) const = 0;
  /// Takes device memory from torch's allocator from now on.  Returns false and sets @p why if it cannot.
  virtual bool use_torch_memory(std::string& why) = 0;
  /// Sets whether use_torch_memory() may succeed (HVD_TORCH_MEMORY).
  virtual void allow_torch_memory(bool allowed) = 0;
  /// Marks the calling thread as a thread of the runtime, so that a CUDA context stays current there.
  virtual void keep_thread() {}

 protected:
  ~Platform() = default;
};

/// The platform of this process: CUDA and NCCL, which are looked up at the first use.
Platform& platform();

}  // namespace hvd::gpu

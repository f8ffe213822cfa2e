/// @file device.h — the seam between the runtime and GPUs: all that runtime/core knows of them.
///
/// A process has a Platform.  It has a LocalGpu for each GPU that the process sees; a request names one.  A process set
/// opens a SetDevice with its first tensor on a GPU.  There
///   - the ranks agree how tensors on GPUs travel: among the GPUs, or through host memory;
///   - submit() takes the tensors of a batch that travel among the GPUs, step() goes on with them until done();
///   - stage() and give_back() copy the others to pinned host memory and back;
///   - watch() polls what is still running, and fail() ends it.
/// An operation ends for the engine when its work is queued on a stream.  A DeviceCompletion tells when the GPU has
/// finished this work, or that it failed.
///
/// runtime/gpu/nccl implements it over the CUDA driver and NCCL; a test may have an implementation of its own.
/// Only ~SetDevice() waits for a device.  fail() and split() may wait for NCCL calls, at most two seconds.
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

/// What the ranks of a set have agreed on.
struct DeviceFacts {
  bool among_gpus = false;         ///< tensors can travel among the GPUs, without the host's memory
  std::uint32_t through_host = 0;  ///< kinds (bit_of) whose tensors the user wants to go through host memory
  Capabilities capabilities;
};

/// A part of this rank's GPU that is kept for one process set; given back by the destructor.
class DeviceShare {
 public:
  virtual ~DeviceShare() = default;
  /// In units that ranks can compare: all take the least among them.
  virtual int blocks() const = 0;
};

/// What a new set gets of the world's device.
class DeviceInheritance {
 public:
  virtual ~DeviceInheritance() = default;
};

/// The GPUs' part of one process set.  Under the engine's drive lock.
class SetDevice {
 public:
  struct Result {
    std::vector<DeviceTensor> tensors;  ///< as submitted, with what was received and the results
    std::shared_ptr<DeviceCompletion> end;
  };
  /// Queued work has two seconds to end by itself, since other ranks may need it.  Then it is ended.
  virtual ~SetDevice() = default;

  /// Collective over the set, once, before its first batch.  gpu: of this rank's first tensor; nullptr: it has none.
  virtual void begin_agreement(LocalGpu* gpu) = 0;
  /// True when anything moved.
  virtual bool step_agreement() = 0;
  virtual bool agreed() const = 0;
  virtual const DeviceFacts& facts() const = 0;

  /// @name Tensors that travel among the GPUs, one batch after the other
  /// @{
  /// True until the first submit(), which makes the connections.
  virtual bool joins() const = 0;
  /// @p tensors: in the same order on all ranks.  row: of the timeline, which is told later what the GPU did when; 0:
  /// none.  Throws Error.
  virtual void submit(std::vector<DeviceTensor> tensors, std::uint32_t row) = 0;
  virtual bool step() = 0;
  /// True when all work of the batch is queued.
  virtual bool done() const = 0;
  /// True while a thread of the device runs the batch.  step() has nothing to do until it calls SetContext::wake.
  virtual bool wakes() const { return false; }
  virtual Result finish() = 0;
  /// @}

  /// @name Tensors that travel through host memory
  /// @{
  /// Starts to copy the tensor's input to pinned memory, and returns that.  staged(): all copies have ended.
  virtual void* stage(const DeviceTensor& tensor) = 0;
  virtual bool staged() const = 0;
  /// Queues the copy back to the GPU.  tensor.out gets what is in @p pinned, of stage(); of an allgather, alltoall or
  /// reducescatter, tensor.destination() gets what is in @p result (its data may be nullptr: there is none).  Both may
  /// be freed afterwards.
  virtual std::shared_ptr<DeviceCompletion> give_back(DeviceTensor& tensor, void* pinned,
                                                      std::span<const std::byte> result) = 0;
  /// @}

  /// Something runs on the device that has not ended.
  virtual bool running() const = 0;
  /// Like running(), after a query of the device.  Callers may ask often: the device is queried once in 20 µs at most.
  virtual bool busy() { return running(); }
  /// Checks the queued work.  True when some of it has ended.  Throws Error when the device, or another rank's part,
  /// has failed.
  virtual bool watch() = 0;
  /// Ends the device's use.  Work that is fully queued has two seconds to end by itself.
  virtual void fail(int code, const std::string& text) = 0;

  /// @name Process sets that inherit
  /// @{
  /// True if a device for some of the set's ranks can be split from this one.  The same on all ranks.
  virtual bool splits() const = 0;
  /// With splits(): a share of this rank's GPU for the new set.
  virtual std::unique_ptr<DeviceShare> share() = 0;
  /// With splits(): true when nothing runs on the device, so split() may be called.  Throws Error.
  virtual bool quiet() = 0;
  /// While quiet(), on all ranks.  rank: this one's place in the new set; -1: none, and nullptr is returned.  blocks:
  /// the least that a rank has.  Throws Error.
  virtual std::unique_ptr<DeviceInheritance> split(int rank, int size, int blocks,
                                                   std::unique_ptr<DeviceShare> share) = 0;
  /// @}
};

/// What a SetDevice gets of its process set.  All of it outlives the device.
struct SetContext {
  /// A stage that carries every rank's bytes to every rank of the set: an allgather of one row.
  using Exchange = std::function<std::unique_ptr<ops::Movement>(const void* bytes, std::size_t count)>;
  const World& world;
  const options::Configuration& config;
  std::atomic<bool>& busy;  ///< becomes true when work is left to the GPU
  trace::Tracer& tracer;
  std::uint64_t host;  ///< the same for ranks that see the same GPUs
  Exchange exchange;
  /// Wakes the engine's thread, if it sleeps.  Any thread.
  std::function<void()> wake = {};
};

/// The GPUs of this process.
class Platform {
 public:
  /// Throws Error: usage if no GPU has this number, unavailable where there are no GPUs.
  virtual LocalGpu& at(int ordinal) = 0;
  /// inherited: what split() gave for this set; or nullptr.
  virtual std::unique_ptr<SetDevice> open(SetContext context, std::unique_ptr<DeviceInheritance> inherited) = 0;
  /// Frees a result of whatever GPU.  False: it is no memory of ours on a GPU.
  virtual bool free_result(void* result) = 0;
  /// Of "cuda", "nccl" or "kernels"; 0: not there.
  virtual int version(std::string_view what) const = 0;
  /// Takes device memory from torch's allocator from now on.  Returns false and sets @p why if it cannot.
  virtual bool use_torch_memory(std::string& why) = 0;
  /// Sets whether use_torch_memory() may succeed (HVD_TORCH_MEMORY).
  virtual void allow_torch_memory(bool allowed) = 0;
  /// Marks the calling thread as the runtime's own, so that a CUDA context stays current there.
  virtual void keep_thread() {}

 protected:
  ~Platform() = default;
};

/// This process's: CUDA and NCCL, found at the first use.
Platform& platform();

}  // namespace hvd::gpu
